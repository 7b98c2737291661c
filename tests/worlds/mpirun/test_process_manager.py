"""What the process manager answers to ranks that start MPI."""

import pytest

from course.worlds.mpirun.process_manager import ProcessManager, environment


def said(manager, rank, *requests):
    """What a rank is answered to requests, each a line."""
    found = manager.answers(rank, "".join(f"{request}\n" for request in requests).encode())
    assert all(to == rank for to, _ in found)
    return [answer.decode().rstrip("\n") for _, answer in found]


def test_a_rank_finds_its_manager_by_its_environment():
    assert environment(2, 4, 17) == {"PMI_FD": "17", "PMI_RANK": "2", "PMI_SIZE": "4"}


@pytest.mark.parametrize(("request_", "answer"), [
    ("cmd=init pmi_version=1 pmi_subversion=1",
     "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
    ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024"),
    ("cmd=get_appnum", "cmd=appnum appnum=0"),
    ("cmd=get_universe_size", "cmd=universe_size size=3"),
    ("cmd=get kvsname=any key=PMI_process_mapping",
     "cmd=get_result rc=0 msg=found value=(vector,(0,1,3))"),
    ("cmd=get kvsname=any key=nothing", "cmd=get_result rc=-1 msg=unknown"),
    ("cmd=finalize", "cmd=finalize_ack"),
])  # fmt: skip
def test_what_a_rank_is_told(request_, answer):
    assert said(ProcessManager(3), 1, request_) == [answer]


def test_what_one_rank_puts_another_gets():
    manager = ProcessManager(2)
    assert said(manager, 0, "cmd=put kvsname=t key=address value=a=b#c") == [
        "cmd=put_result rc=0 msg=success"
    ]
    assert said(manager, 1, "cmd=get kvsname=t key=address") == [
        "cmd=get_result rc=0 msg=found value=a=b#c"
    ]


def test_nobody_leaves_a_barrier_before_all_have_come():
    manager = ProcessManager(3)
    for _ in range(2):
        assert manager.answers(2, b"cmd=barrier_in\n") == []
        assert manager.answers(0, b"cmd=barrier_in\n") == []
        left = manager.answers(1, b"cmd=barrier_in\n")
        assert sorted(left) == [(rank, b"cmd=barrier_out\n") for rank in range(3)]


def test_a_request_may_come_in_pieces_and_two_at_once():
    manager = ProcessManager(2)
    assert manager.answers(0, b"cmd=get_app") == []
    assert manager.answers(1, b"cmd=get_universe_size\n") == [(1, b"cmd=universe_size size=2\n")]
    answers = manager.answers(0, b"num\ncmd=finalize\ncmd=ab")
    assert answers == [(0, b"cmd=appnum appnum=0\n"), (0, b"cmd=finalize_ack\n")]


@pytest.mark.parametrize("noise", [b"\n", b"cmd=spawn\n", b"\xff\x00\n", b"=\n", b"", b"cmd=put\n"])
def test_what_is_no_request_disturbs_nobody(noise):
    manager = ProcessManager(2)
    manager.answers(0, noise)
    assert said(manager, 1, "cmd=get_appnum") == ["cmd=appnum appnum=0"]


def test_no_two_runs_have_a_name_in_common():
    (first,), (second,) = (said(ProcessManager(2), 0, "cmd=get_my_kvsname") for _ in range(2))
    assert first != second and len(first) == len(second) == len("cmd=my_kvsname kvsname=") + 32
