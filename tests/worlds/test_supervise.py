import os
import signal
import sys
import textwrap

import pytest
import torch

from course.comm import CommTimeout, PeerLost, Trace
from course.worlds import RankError, run


def failure(fn, ranks, **options) -> RankError:
    with pytest.raises(RankError) as caught:
        run(fn, ranks, **options)
    return caught.value


def one_divides_by_zero(comm):
    if comm.rank == 2:
        shares = 0
        return 1 / shares
    comm.barrier()


def test_the_rank_that_raised_is_named_and_the_others_as_consequences():
    error = failure(one_divides_by_zero, 4)
    assert error.rank == 2
    assert isinstance(error.exception, ZeroDivisionError)
    assert error.failures[2] == "ZeroDivisionError: division by zero"
    assert sorted(error.failures) == [0, 1, 2, 3]
    for rank in (0, 1, 3):
        assert error.failures[rank].startswith(("PeerLost: rank", "PeerLost: ranks"))
        assert f"rank {rank}: {error.failures[rank]}" in str(error)


def test_the_message_shows_the_line_and_the_function():
    error = failure(one_divides_by_zero, 4)
    first, *rest = str(error).splitlines()
    assert first == "rank 2 failed: ZeroDivisionError: division by zero"
    assert "    return 1 / shares" in "\n".join(rest)
    assert "in one_divides_by_zero" in str(error)
    assert "course/comm" not in str(error)  # none of our lines, which are not to blame
    assert [function for _, _, function in error.stack] == ["one_divides_by_zero"]


def wait_in_a_line_of_its_own(comm):
    x = torch.zeros(3)
    comm.recv(x, 0, tag=5)


def test_an_error_of_the_communicator_is_shown_where_it_was_called():
    error = failure(wait_in_a_line_of_its_own, 1, timeout=0.2)
    assert isinstance(error.exception, CommTimeout)
    assert "comm.recv(x, 0, tag=5)" in str(error)
    assert "course/comm/" not in str(error)


def wrong_argument(comm):
    return comm.send(torch.zeros(3), comm.rank + 1)


def test_a_wrong_argument_is_shown_where_it_was_given():
    error = failure(wrong_argument, 1)
    assert isinstance(error.exception, ValueError)
    assert "return comm.send(torch.zeros(3), comm.rank + 1)" in str(error)


def ends(comm, how):
    if comm.rank == 1:
        {
            "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "crashed": lambda: os.kill(os.getpid(), signal.SIGSEGV),
            "left": lambda: os._exit(3),
            "left well": lambda: os._exit(0),
            "exited": lambda: sys.exit(4),
            "exited well": lambda: sys.exit(),
            "interrupted": lambda: signal.raise_signal(signal.SIGTERM),
        }[how]()
    comm.barrier()


@pytest.mark.parametrize(
    "how, sentence",
    [
        ("killed", "PeerLost: rank 1 was ended by SIGKILL before its function had returned"),
        ("crashed", "PeerLost: rank 1 was ended by SIGSEGV before its function had returned"),
        ("left", "PeerLost: rank 1 exited with status 3 before its function had returned"),
        ("left well", "PeerLost: rank 1 exited with status 0 before its function had returned"),
        ("exited", "SystemExit: 4"),
        ("exited well", "SystemExit: "),
        ("interrupted", "PeerLost: rank 1 was ended by SIGTERM before its function had returned"),
    ],
)
def test_a_rank_that_ended_in_whatever_way_is_named(how, sentence):
    with pytest.raises(RankError) as caught:
        run(ends, 2, how)
    error = caught.value
    assert error.rank == 1 and error.failures[1] == sentence
    assert error.failures[0].startswith("PeerLost: rank 1 was lost while rank 0 was in ")
    kind = SystemExit if "exited" in how else PeerLost
    assert isinstance(error.exception, kind)


def one_computes_for_ever(comm):
    if comm.rank == 0:
        raise KeyError("absent")
    while True:
        comm.rank + comm.size


def test_a_rank_that_was_still_running_is_shown_where_it_was():
    error = failure(one_computes_for_ever, 2)
    assert error.rank == 0
    assert list(error.running) == [1]
    assert error.running[1].startswith(", in one_computes_for_ever, line ")
    assert f"rank 1 was still running{error.running[1]}" in str(error)


class Stubborn(Exception):
    """An exception that cannot travel."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")  # so that unpickling calls it with one argument


def raise_stubborn(comm):
    raise Stubborn("this", "that")


def test_an_exception_that_cannot_travel_is_told_in_words():
    error = failure(raise_stubborn, 1)
    assert error.exception is None
    assert error.failures == {0: "Stubborn: this and that"}
    assert 'raise Stubborn("this", "that")' in str(error)


def chain(comm):
    try:
        {}["absent"]
    except KeyError as error:
        raise ValueError("there is no such entry") from error


def test_the_cause_of_an_exception_is_told_too():
    text = str(failure(chain, 1))
    assert '{}["absent"]' in text and 'raise ValueError("there is no such entry")' in text
    assert "direct cause" in text


def test_source_lines_come_from_the_launcher(monkeypatch):
    """The ranks have no source of a notebook cell: its text is in the notebook's process only."""
    import linecache

    source = textwrap.dedent("""
        def from_a_cell(comm):
            comm.barrier()
            raise RuntimeError("in the cell")
    """)
    name = "/nowhere/cell-17.py"
    monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(True), name))
    scope = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), scope)
    error = failure(scope["from_a_cell"], 2)
    assert 'File "/nowhere/cell-17.py", line 4, in from_a_cell' in str(error)
    assert 'raise RuntimeError("in the cell")' in str(error)


def all_disagree(comm):
    with comm.collective("gather", torch.zeros(comm.rank)):
        pass


def test_of_ranks_that_disagree_the_message_names_all():
    error = failure(all_disagree, 3)
    sentence = (
        "CommMismatch: rank 0 is in gather #1 (float32 [0]); "
        "rank 1 is in gather #1 (float32 [1]); rank 2 is in gather #1 (float32 [2])"
    )
    assert set(error.failures.values()) == {sentence}


def trail(comm):
    comm.exchange(torch.zeros(2), 1 - comm.rank, torch.zeros(2), 1 - comm.rank)
    if comm.rank == 1:
        raise ArithmeticError("after one message")
    comm.recv(torch.zeros(2), 1)


def test_the_trace_of_a_run_that_failed_holds_what_was_done():
    trace = Trace()
    error = failure(trail, 2, trace=trace)
    assert error.rank == 1
    assert trace.sent_messages == [1, 1] and trace.sent_bytes == [8, 8]
