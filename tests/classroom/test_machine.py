"""Every probe of the machine is shown a bad one, and says what to do about it."""

import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from course.classroom import machine
from course.classroom.machine import GB, Finding


def test_one_core():
    assert machine.cores(1).mark == "note" and "take turns" in machine.cores(1).advice
    assert machine.cores(8) == Finding("cores", "8 for this process")


def meminfo(folder, available_gb):
    path = folder / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {int(available_gb * 2**20)} kB\n")
    return path


@pytest.mark.parametrize(("free_gb", "mark"), [(16, "ok"), (2, "note"), (0.5, "fix")])
def test_little_memory(tmp_path, free_gb, mark):
    found = machine.memory(meminfo(tmp_path, free_gb), tmp_path, own="")
    assert (found.mark, found.state) == (mark, f"{free_gb:.1f} GB free")
    assert mark == "ok" or "four ranks want 3 GB" in found.advice


def group(folder, limit, use, cached, *, names=("memory.max", "memory.current", "inactive_file")):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names[:2], (limit, use), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n")


def test_the_tightest_control_group_counts(tmp_path):
    root = tmp_path / "cgroup"
    group(root / "a", 2 * GB, GB, GB // 2)
    group(root / "a" / "b", "max", GB, 0)
    found = machine.memory(meminfo(tmp_path, 16), root, own="0::/a/b\n")
    assert (found.mark, found.state) == ("note", "1.5 GB free")
    group(root, GB, GB // 2, 0)
    assert machine.memory(meminfo(tmp_path, 16), root, own="0::/a/b\n").state == "0.5 GB free"
    assert machine.memory(meminfo(tmp_path, 16), root, own="0::/gone\n").state == "0.5 GB free"


def test_a_control_group_of_version_1(tmp_path):
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    group(tmp_path / "memory" / "job", 2 * GB, GB, 0, names=names)
    found = machine.memory(meminfo(tmp_path, 16), tmp_path, own="4:memory:/job\n3:cpu:/job\n")
    assert found.state == "1.0 GB free"


def test_memory_where_nothing_tells(tmp_path):
    assert machine.memory(tmp_path / "meminfo").mark == "ok"


def test_small_shared_memory(tmp_path):
    def usage(free):
        return lambda folder: SimpleNamespace(free=free)

    found = machine.shared_memory(tmp_path, usage(64 * 2**20))
    assert (found.mark, found.state) == ("note", f"0.062 GB free in {tmp_path}")
    assert "only on=mpi() needs it" in found.advice and "--shm-size=1g" in found.advice
    assert machine.shared_memory(tmp_path, usage(GB)).mark == "ok"
    assert machine.shared_memory(tmp_path / "none").mark == "ok"


def test_loopback():
    assert machine.loopback() == Finding("loopback", "this machine can send to itself (127.0.0.1)")
    found = machine.loopback("192.0.2.1")  # an address that no machine has
    assert found.mark == "fix" and "ip link set lo up" in found.advice


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    assert machine.cache(file / "cache").advice.startswith("set XDG_CACHE_HOME")
    assert machine.ledger(file / "own" / "p.json").advice.startswith("set COURSE_PROGRESS")
    assert machine.cache(tmp_path / "new").state == f"{tmp_path / 'new'} can be written"
    assert machine.ledger(tmp_path / "p.json").mark == "ok"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert machine.cache().state == f"{tmp_path / 'xdg'} can be written"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_user_without_a_home_folder_gets_notes(monkeypatch):
    """As in containers that run under a number nobody has a name for."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for name in ("COURSE_PROGRESS", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for found in (machine.cache(), machine.ledger()):
        assert (found.mark, found.state.split(" ~")[0]) == ("note", "there is no home folder for")


AS_NOBODY = """
import os, sys, tempfile
os.setgid(65534), os.setuid(65534)
from course.classroom import machine
from course.classroom.doctor import examined
for found in (examined("cache", machine.cache), examined("progress", machine.ledger)):
    print(found.mark, found.state)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_home_folder_that_may_not_be_entered_gets_notes(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    environment = {"HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", f"import course.classroom.doctor, tempfile\n{AS_NOBODY}"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    marks = [line.split()[0] for line in done.stdout.splitlines()]
    assert marks == ["note", "note"], done.stdout + done.stderr


def test_staged_data(tmp_path):
    assert machine.data("").mark == "ok"
    assert machine.data(str(tmp_path)).mark == "fix"
    assert "COURSE_DATA" in machine.data(str(tmp_path / "none")).advice
    (tmp_path / "bsds500").mkdir()
    assert machine.data(str(tmp_path)) == Finding("data", f"{tmp_path}: bsds500")


def test_two_ranks_really_meet():
    assert machine.two_ranks().state == "two processes have exchanged their numbers"
    assert machine.two_ranks(lambda *_, **__: [0, 0]).mark == "fix"


def test_hosts_are_not_needed():
    found = machine.hosts(lambda: "this machine has no hosts in a box: no Linux")
    assert (found.mark, found.state) == ("note", "this machine has no hosts in a box: no Linux")
    assert "recorded" in found.advice
    found = machine.hosts(lambda: None)
    assert found.mark == "ok" and "imitate a cluster" in found.state


WITHOUT_USER_NAMESPACES = """
echo 0 > /proc/sys/user/max_user_namespaces
exec setpriv --ambient-caps=-all --inh-caps=-all "$@"
"""


def test_a_learner_without_user_namespaces_is_told():
    """As on a hub whose kernel allows none: the limit is that of a namespace of the test's own."""
    private = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps"]
    if subprocess.run([*private, "setpriv", "true"], capture_output=True).returncode:
        pytest.skip("there is no user namespace for this user")
    look = "from course.classroom import machine; print(*machine.hosts(), sep='\\n')"
    done = subprocess.run(
        [*private, "sh", "-c", WITHOUT_USER_NAMESPACES, "sh", sys.executable, "-c", look],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True,
    )  # fmt: skip
    _, why, advice, obstacle = done.stdout.splitlines()
    assert why.startswith("this machine has no hosts in a box: the kernel allows network namesp")
    assert "(work as root, or allow " in why and "user.max_user_namespaces" in why
    assert (advice, obstacle) == ("notebooks show recorded times over Ethernet instead", "False")


def test_slurm_is_not_needed():
    assert machine.slurm(installed=False).mark == "ok"
    found = machine.slurm(lambda: "no partition of this Slurm is up (see `sinfo`)", True)
    assert (found.mark, found.state.split(" (")[0]) == ("note", "no partition of this Slurm is up")
    assert found.advice.startswith("only on=slurm() needs it")
    assert machine.slurm(lambda: None, True).mark == "ok"


def test_a_full_disk_is_told_though_it_takes_a_file(tmp_path):
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (machine.BLOCK // 2, most[1]))
    try:
        assert machine.unwritable(tmp_path) == f"{tmp_path}: File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert machine.unwritable(tmp_path) == "" and not list(tmp_path.iterdir())


def test_a_finding_is_marked_by_what_it_asks_for():
    assert Finding("cores", "8").mark == "ok"
    assert Finding("cores", "1", "so and so").mark == "note"
    assert Finding("system", "Windows", "so and so", True).mark == "fix"
