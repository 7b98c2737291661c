import os
import pathlib

import pytest

from course.worlds.cores import CGROUPS, cores, quotas, threads

AFFINITY = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """This process is in groups as a text says, of which each has files in a folder."""

    def make(own, place, **files):
        monkeypatch.setattr(pathlib.Path, "read_text", reading(own))
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / place / f"cpu.{name}").write_text(text)
        return tmp_path

    return make


def reading(own):
    """Path.read_text for a process that is in the groups `own`."""
    original = pathlib.Path.read_text
    return lambda path: own if str(path) == "/proc/self/cgroup" else original(path)


@pytest.mark.parametrize(
    "text, quota",
    [
        ("150000 100000\n", [1.5]),
        ("max 100000\n", []),
        ("50000 100000", [0.5]),
        ("nonsense", []),
        ("", []),
    ],
)
def test_a_quota_of_cgroups_2_is_counted_in_cores(groups, text, quota):
    assert list(quotas(groups("0::/\n", "", max=text))) == quota


IN_CONTAINER = "docker/not-seen-in-here", ""  # which takes its own group for the outermost


@pytest.mark.parametrize("text, quota", [("300000", [3]), ("-1", []), ("0", [])])
@pytest.mark.parametrize("own, seen", [("", ""), ("uid_5/job_7", "uid_5/job_7"), IN_CONTAINER])
def test_a_quota_of_cgroups_1_is_counted_in_cores(groups, text, quota, own, seen):
    said = f"3:memory:/else\n2:cpu,cpuacct:/{own}\n1:name=systemd:/user\n0::/\n"
    files = {"cfs_quota_us": text, "cfs_period_us": "100000\n"}
    assert list(quotas(groups(said, f"cpu/{seen}", **files))) == quota


def test_a_system_that_says_nothing_of_groups_has_no_quota(groups):
    assert list(quotas(groups("", "", max="150000 100000"))) == []


def test_every_enclosing_group_counts(groups):
    groups("0::/user/job\n", "user", max="200000 100000")
    assert sorted(quotas(groups("0::/user/job\n", "user/job", max="400000 100000"))) == [2, 4]


def test_the_least_counts_and_it_is_at_least_one(groups, tmp_path):
    assert cores(tmp_path / "absent") == AFFINITY
    assert cores(groups("0::/\n", "", max="10000 100000")) == 1
    assert cores(groups("0::/\n", "", max=f"{AFFINITY * 1000_000} 100000")) == AFFINITY


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_counts(tmp_path):
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_this_machine_has_some():
    assert 1 <= cores(CGROUPS) <= AFFINITY


@pytest.mark.parametrize(
    "said, ranks, expected",
    [
        ("", 2, 2),
        ("", 10**6, 1),
        ("1", 2, 1),  # it was not asked: 2 threads on 4 cores
        ("3", 2, 3),
        ("3", 10**6, 3),
        ("64", 1, 4),  # MKL's threads wait in loops: more than cores may never end
        ("0", 2, 2),
        ("4,2", 2, 2),
        ("many", 1, 4),
    ],
)
def test_the_threads_of_a_rank_are_what_the_user_says_or_its_share_and_never_more_than_cores(
    monkeypatch, said, ranks, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setattr("course.worlds.cores.cores", lambda: 4)
    assert threads(ranks) == expected


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("64", 3), ("", 3), ("2(x2)", 3)])
def test_what_slurm_gives_counts_even_where_it_is_not_enforced(
    monkeypatch, tmp_path, given, expected
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", given)
    assert cores(tmp_path) == expected
