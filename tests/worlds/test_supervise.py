import os
import signal
import sys
import textwrap
import threading
import time

import pytest
import torch

from course.comm import CommError, CommTimeout, PeerLost, Trace
from course.worlds import RankError, run, supervise
from course.worlds.console import Printer
from course.worlds.pickling import Failure, pack_result
from course.worlds.supervise import Supervisor


def failure(fn, ranks, *args, **options) -> RankError:
    with pytest.raises(RankError) as caught:
        run(fn, ranks, *args, **options)
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
            "beyond": lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6),
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
        (
            "killed",
            "PeerLost: rank 1 was ended by SIGKILL before its function had returned "
            "(out of memory?)",
        ),
        ("crashed", "PeerLost: rank 1 was ended by SIGSEGV before its function had returned"),
        (
            "beyond",
            f"PeerLost: rank 1 was ended by signal {signal.SIGRTMIN + 6} before its function "
            "had returned",
        ),  # `is not a valid Signals`
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


class Leaving:
    """A result that ends whoever unpacks it."""

    def __reduce__(self):
        return sys.exit, ("the launcher has left",)


def returns_leaving(comm, fail):
    if fail and comm.rank == 1:
        raise LookupError("the real cause")
    return Leaving() if comm.rank == 0 else "well"


def test_a_result_that_cannot_be_unpacked_is_a_failure_of_its_rank():
    """It ended the script."""
    error = failure(returns_leaving, 2, False)
    sentence = "what it returned cannot be unpacked here: SystemExit: the launcher has left"
    assert error.rank == 0 and error.failures == {0: sentence} and error.values == {1: "well"}
    assert str(error) == f"rank 0 failed: {sentence}"


def test_a_result_that_cannot_be_unpacked_does_not_hide_another_failure():
    error = failure(returns_leaving, 2, True)
    assert error.rank == 1 and isinstance(error.exception, LookupError)
    assert "rank 0: what it returned cannot be unpacked here: SystemExit" in str(error)


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def raise_mute_beside_a_thread(comm):
    threading.Thread(target=time.sleep, args=[1000]).start()
    raise Mute


def test_an_exception_without_words_ends_its_rank_whatever_its_threads_do():
    error = failure(raise_mute_beside_a_thread, 1, limit=60)
    assert error.failures == {0: "Mute: <exception str() failed>"}


class LeavesWhenPacked(Exception):
    def __reduce__(self):
        os.write(2, b"packing")
        raise SystemExit


def raise_what_leaves(comm):
    threading.Thread(target=time.sleep, args=[1000]).start()
    raise LeavesWhenPacked("odd")


def test_a_failure_whose_packing_leaves_is_told_in_words():
    assert failure(raise_what_leaves, 1, limit=60).failures == {0: "LeavesWhenPacked: odd"}


class Scripted:
    """Workers that say what a test has written, a poll at a time."""

    def __init__(self, *polls):
        self.polls, self.asked = list(polls), []

    def poll(self, timeout):
        if not self.polls:
            raise KeyboardInterrupt
        return self.polls.pop(0)

    def request_stack(self, rank):
        self.asked.append(rank)


def supervisor(ranks):
    return Supervisor(ranks, Printer(ranks, live=False))


def test_ranks_that_never_start_are_named(monkeypatch):
    """A fork server that hung held the notebook for ever."""
    monkeypatch.setattr(supervise, "START_S", 0.05)
    workers = Scripted([(0, "started", 7)], *[[]] * 10**6)
    with pytest.raises(CommError, match="^ranks 1, 2 had not started after 0.05 s$"):
        supervisor(3).until_settled(workers, 0, None)


def test_of_failures_that_weigh_the_same_the_first_is_raised():
    watch = supervisor(3)
    for rank, when, severity in ((0, 5.0, 0), (1, 3.0, 0), (2, 1.0, 2)):
        watch.handle([(rank, "failure", (Failure(rank, when, severity, f"of {rank}"), []))])
    with pytest.raises(RankError, match="^rank 1 failed: of 1\n\nrank 0: of 0\nrank 2: of 2$"):
        watch.values()


def test_a_rank_that_says_its_result_and_ends_has_not_failed():
    watch = supervisor(1)
    watch.handle([(0, "ended", 9), (0, "result", (pack_result(0, 3), []))])
    assert watch.values() == [3] and not watch.unfinished
