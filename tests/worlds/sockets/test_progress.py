import contextlib
import os
import pathlib
import signal
import time
import types

import pytest
import torch

from course.comm import ANY, CommError, CommTimeout
from course.comm.transport import Envelope
from course.worlds import RankError, run
from course.worlds.sockets import progress
from tests.worlds.sockets.pair import Pair

LARGE = 700_001  # doubles: more than any socket buffer, and than a ring


def told(act, *args, **kwargs) -> str:
    """What a call says that must fail."""
    try:
        act(*args, **kwargs)
    except CommError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def moved(transport, timeout_s) -> bool:
    """Move what can be moved, as a rank does while it waits."""
    with transport.progress.lock:
        return transport.progress.poll(timeout_s)


def until(condition):
    """Poll until something is so, with an end."""
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("this should have come about long ago")
        time.sleep(0.005)


def until_heard(comm, condition):
    """Poll until what others have sent makes something so."""
    until(lambda: [moved(comm._transport, 0.01), condition()][1])


# Ranks that do not do the same thing

F64, F32, I64 = torch.float64, torch.float32, torch.int64
MISFITS = {  # what is sent, the place for it
    "longer": ([4], F64, [5], F64),
    "shorter": ([3, 2], F64, [5], F64),
    "nothing for something": ([1], F64, [0], F64),
    "something for nothing": ([0], F64, [1], F64),
    "other dtype": ([4], F64, [4], I64),
    "as many bytes": ([4], F64, [8], F32),
    "large": ([LARGE], F64, [LARGE - 1], F64),
    "large for small": ([LARGE], F64, [1], F64),
}


def misfits(comm):
    said = []
    for shape, dtype, place, other in MISFITS.values():
        x, out = torch.ones(shape, dtype=dtype), torch.full(place, 7, dtype=other)
        said.append(told(comm.send, x, 1, 3) if comm.rank == 0 else told(comm.recv, out, 0, 3))
        after = torch.zeros(2)
        comm.barrier()  # the program may go on
        comm.exchange(torch.ones(2), 1 - comm.rank, after, 1 - comm.rank, tag=3)
        said[-1] += "" if out.eq(7).all() and after.eq(1).all() else ", and something was written"
    return said


def test_a_message_that_does_not_fit_is_named_at_both_ends(on):
    def words(shape, dtype):
        return f"{str(dtype)[6:]} [{torch.Size(shape).numel()}], tag 3"

    expected = [
        f"CommMismatch: rank 0 is in send to rank 1 ({words(*misfit[:2])}); "
        f"rank 1 is in recv from rank 0 ({words(*misfit[2:])})"
        for misfit in MISFITS.values()
    ]
    assert run(misfits, 2, on=on(2)) == [expected] * 2


def misfit_that_was_buffered(comm):
    if comm.rank == 0:
        return told(comm.send, torch.ones(4), 1)
    return told(comm.recv, torch.zeros(5), 0)


def test_unchecked_a_message_that_does_not_fit_is_named_by_its_receiver(on):
    assert run(misfit_that_was_buffered, 2, on=on(2), checked=False) == [
        "nothing",
        "CommMismatch: rank 0 is in send to rank 1 (float32 [4], tag 0); "
        "rank 1 is in recv from rank 0 (float32 [5], tag 0)",
    ]


def enter(comm, name, shape, dtype=F32, **details):
    with comm.collective(name, torch.zeros(shape, dtype=dtype), **details):
        pass


DISAGREEMENTS = {  # what rank 2 does, what the others do, and how the two are named
    "operation": (("broadcast", [9], {"root": 0}), ("all_reduce", [9], {"op": "sum"}),
                  "broadcast #1 (float32 [9], root 0)", "all_reduce #1 (float32 [9], op sum)"),
    "shape": (("gather", [9], {}), ("gather", [3, 3], {}),
              "gather #2 (float32 [9])", "gather #2 (float32 [3, 3])"),
    "dtype": (("gather", [9], {"dtype": F64}), ("gather", [9], {}),
              "gather #3 (float64 [9])", "gather #3 (float32 [9])"),
    "op": (("reduce", [2], {"op": "sum"}), ("reduce", [2], {"op": "mean"}),
           "reduce #4 (float32 [2], op sum)", "reduce #4 (float32 [2], op mean)"),
    "root": (("broadcast", [2], {"root": 2}), ("broadcast", [2], {"root": 0}),
             "broadcast #5 (float32 [2], root 2)", "broadcast #5 (float32 [2], root 0)"),
}  # fmt: skip


def disagreements(comm):
    said = []
    for odd, usual, *_ in DISAGREEMENTS.values():
        name, shape, details = odd if comm.rank == 2 else usual
        said.append(told(enter, comm, name, shape, **details))
    comm.barrier()  # the program may go on
    return said


def test_every_rank_names_the_calls_that_differ(on):
    expected = [
        f"CommMismatch: rank 2 is in {odd}; ranks 0, 1, 3 are in {usual}"
        for *_, odd, usual in DISAGREEMENTS.values()
    ]
    assert run(disagreements, 4, on=on(4)) == [expected] * 4


def call_number_seven(comm):
    for _ in range(6):
        comm.barrier()
    if comm.rank == 2:
        return told(enter, comm, "broadcast", [1000], root=0)
    return told(enter, comm, "all_reduce", [1000], op="sum")


def test_calls_are_counted():
    sentence = (
        "CommMismatch: rank 2 is in broadcast #7 (float32 [1000], root 0); "
        "ranks 0, 1, 3 are in all_reduce #7 (float32 [1000], op sum)"
    )
    assert run(call_number_seven, 4) == [sentence] * 4


def calls_of_a_group(comm):
    odd = comm.split(comm.rank % 2)
    if comm.rank % 2 == 0:
        return told(enter, odd, "gather", [comm.rank])
    return told(odd.barrier), told(comm.split, 0) if comm.rank == 1 else told(comm.barrier)


def test_a_group_is_named_and_its_ranks_have_their_numbers_in_the_world():
    said = run(calls_of_a_group, 4, timeout=3)
    here = "world/1:0"
    sentence = f"CommMismatch: rank 0 is in gather #1 in {here} (float32 [0]); "
    assert said[0] == said[2] == sentence + f"rank 2 is in gather #1 in {here} (float32 [2])"
    assert said[1][0] == said[3][0] == "nothing"


def who_splits(comm):
    return told(comm.split, 0) if comm.rank == 1 else told(comm.barrier)


def test_a_split_is_a_call_like_any_other():
    sentence = "CommMismatch: rank 1 is in split #1; ranks 0, 2 are in barrier #1"
    assert run(who_splits, 3) == [sentence] * 3


def receive_while_others_meet(comm, source):
    if comm.rank == 1:
        said = comm._transport.receiver.roll_calls.said
        until_heard(comm, lambda: [len(ranks) for ranks in said.values()] == [2])
        return told(comm.recv, torch.zeros(3), source, 4)
    return told(enter, comm, "all_reduce", [5], op="sum")


@pytest.mark.parametrize("source, name", [(2, "rank 2"), (ANY, "any rank")])
def test_nobody_sends_who_waits_in_a_collective(on, source, name):
    sentence = (
        f"CommMismatch: rank 1 is in recv from {name} (float32 [3], tag 4); "
        "ranks 0, 2 are in all_reduce #1 (float32 [5], op sum)"
    )
    assert run(receive_while_others_meet, 3, source, on=on(3)) == [sentence] * 3


def begin_meet_wait(comm, size):
    peer, out = 1 - comm.rank, torch.zeros(size, dtype=F64)
    if comm.rank == 0:
        sending = comm.isend(torch.ones(size, dtype=F64), peer)
        comm.barrier()
        sending.wait()
        receiving = comm.irecv(out, peer)
        comm.barrier()
        receiving.wait()
    else:
        comm.recv(out, peer)
        comm.barrier()
        comm.send(torch.ones(size, dtype=F64), peer)
        comm.barrier()
    return out.eq(1).all().item()


@pytest.mark.parametrize("size", [1, 10_000, LARGE, 3 * LARGE])
def test_a_message_begun_before_a_barrier_may_be_waited_for_after_it(on, size):
    """The first wire took a receiver whose large message was still coming by memory for one that
    nobody would ever send to: it had seen that the sender was in a barrier already."""
    assert run(begin_meet_wait, 2, size, on=on(2), timeout=5) == [True, True]


# Ranks that wait too long


def ring(comm, size, signs):
    x = torch.full([size], float(comm.rank), dtype=F64)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    said = told(comm.send, x, right)
    if said == "nothing":
        comm.recv(x, left)
        said = x.unique().tolist()
    own, *others = [pathlib.Path(signs, f"{size} {(comm.rank + r) % 3}") for r in range(3)]
    own.touch()  # who gives up first stays, and moves nothing, until the others have
    until(lambda: all(other.exists() for other in others))
    comm._transport.progress.timeout = 0.1
    return said


def hangs(size):
    what = f"(float64 [{size}], tag 0)"
    return [
        f"CommTimeout: rank {r} waited 0.5 s in send to rank {(r + 1) % 3} {what}" for r in range(3)
    ]


@pytest.mark.parametrize("size", [0, 1, 100, 2_000_000])
def test_checked_a_ring_of_sends_hangs_at_any_size_and_says_so(on, size, tmp_path):
    assert run(ring, 3, size, tmp_path, on=on(3), timeout=0.5) == hangs(size)


def test_unchecked_a_ring_of_sends_hangs_only_once_its_messages_are_large(on, tmp_path):
    """The classic: it works for 100 doubles, and in production for two million it does not."""
    how = {"on": on(3), "timeout": 0.5, "checked": False}
    assert run(ring, 3, 100, tmp_path, **how) == [[2.0], [0.0], [1.0]]
    assert run(ring, 3, 2_000_000, tmp_path, **how) == hangs(2_000_000)


def give_up_and_go_on(comm, signs):
    x, early, out = torch.ones(3), torch.zeros(3), torch.zeros(3)
    if comm.rank == 0:
        comm._transport.progress.timeout = 0.3
        said = [told(comm.recv, early, 1), told(comm.send, 5 * x, 1, 6)]
        comm._transport.progress.timeout = 20
        pathlib.Path(signs, "gave up").touch()
        comm.recv(out, 1)
        return said, early.tolist(), out.tolist()
    until(pathlib.Path(signs, "gave up").exists)
    comm.recv(out, 0, 6)
    comm.send(x, 0)
    return out.tolist()


def test_who_has_given_up_can_go_on(on, tmp_path):
    """A receive that was given up no longer takes the message of a later one; a send that was
    given up has still been sent, and its late acceptance does no harm."""
    (said, early, out), late = run(give_up_and_go_on, 2, str(tmp_path), on=on(2))
    assert said == [
        "CommTimeout: rank 0 waited 0.3 s in recv from rank 1 (float32 [3], tag 0)",
        "CommTimeout: rank 0 waited 0.3 s in send to rank 1 (float32 [3], tag 6)",
    ]
    assert early == [0, 0, 0] and out == [1, 1, 1] and late == [5, 5, 5]


@contextlib.contextmanager
def in_seconds_of_its_own(monkeypatch, look_up):
    """Two ends in one process; each look-up of the first takes 0.9 s, and the second may act."""
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    with Pair(timeout=1.0, checked=False) as (first, second):
        poll = first.progress.poller.poll

        def slow_poll(_, lock):
            clock.now += 0.9
            look_up(second)
            return poll(0, lock)

        first.progress.poller.poll = slow_poll
        yield first, second, clock


def test_a_slow_message_is_not_a_hanging_one(monkeypatch):
    x, out, envelope = torch.ones(LARGE), torch.empty(LARGE), Envelope(nbytes=4 * LARGE)
    look_up = in_seconds_of_its_own(monkeypatch, lambda second: moved(second, 0))
    with look_up as (first, second, clock):
        second.receive_tensor([0], envelope, out)
        first.wait(first.send_tensor(1, envelope, x, False), "a long send")
        assert clock.now > 5  # seconds, though only 1 may be quiet


def test_a_message_that_stops_moving_is_a_hanging_one(monkeypatch):
    with in_seconds_of_its_own(monkeypatch, lambda second: None) as (first, _, clock):
        message = first.send_tensor(1, Envelope(nbytes=4 * LARGE), torch.ones(LARGE), False)
        with pytest.raises(CommTimeout, match=r"^rank 0 waited 1 s in a long send$"):
            first.wait(message, "a long send")
        assert 1 < clock.now < 4


# Ranks that are gone


def every_wait(comm):
    """What rank 0 hears in every kind of wait for rank 1, which is gone or soon will be."""
    x = torch.zeros(1)
    said = [told(comm.recv, x, 1), told(comm.send, x, 1, 2), told(comm.recv, x, ANY)]
    y = torch.zeros(1)
    return [*said, told(comm.exchange, x, 1, y, 1), told(comm.barrier), told(comm.split, 0)]


def waits(what):
    places = ["recv from rank 1 (float32 [1], tag 0)", "send to rank 1 (float32 [1], tag 2)",
              "recv from any rank (float32 [1], tag 0)", "send to rank 1 (float32 [1], tag 0)",
              "barrier #1", "split #2"]  # fmt: skip
    return [f"PeerLost: rank 1 {what} while rank 0 was in {place}" for place in places]


def one_returns(comm):
    return every_wait(comm) if comm.rank == 0 else None


def test_a_rank_that_has_returned_is_named(on):
    assert run(one_returns, 2, on=on(2)) == [waits("has returned from its function"), None]


def one_is_killed(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(*every_wait(comm), sep="\n")


def test_a_rank_that_was_killed_is_named(on, capsys):
    with pytest.raises(RankError) as caught:
        run(one_is_killed, 2, on=on(2))
    error, lines = caught.value, capsys.readouterr().out.splitlines()
    assert lines == [f"[0] {sentence}" for sentence in waits("was lost")]
    assert error.rank == 1
    assert (
        error.failures[1]
        == "PeerLost: rank 1 was ended by SIGKILL before its function had returned (out of memory?)"
    )


def only_rank_0_meets(comm):
    if comm.rank:
        return None
    until_heard(comm, lambda: len(comm._transport.receiver.ended) == 3)
    return told(comm.barrier)


def test_all_the_ranks_that_have_returned_are_named():
    said = run(only_rank_0_meets, 4)[0]
    assert said == (
        "PeerLost: ranks 1, 2, 3 have returned from their functions while rank 0 was in barrier #1"
    )


def others_may_still_send(comm):
    x = torch.zeros(1)
    if comm.rank == 1:
        return None
    if comm.rank == 2:
        until_heard(comm, lambda: 1 in comm._transport.receiver.ended)
        comm.send(x, 0)
        return None
    until_heard(comm, lambda: 1 in comm._transport.receiver.ended)
    return comm.recv(x, ANY), told(comm.recv, x, ANY)


def test_any_rank_is_waited_for_while_one_is_left():
    source, said = run(others_may_still_send, 3)[0]
    assert source == 2
    assert said == (
        "PeerLost: ranks 1, 2 have returned from their functions while rank 0 was in "
        "recv from any rank (float32 [1], tag 0)"
    )


def last_words(comm, sizes, ended, signs):
    """Rank 1 ends before rank 0 asks for what it has sent."""
    sign = pathlib.Path(signs, "the end")
    if comm.rank == 1:
        for size in sizes:
            comm.isend(torch.ones(size), 0)
        comm.finish()
        sign.touch()
        if ended == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return
    until(sign.exists)
    outs = [torch.zeros(size) for size in sizes]
    print([comm.recv(out, 1) for out in outs], [out.eq(1).all().item() for out in outs])


@pytest.mark.parametrize("ended", ["killed", "returned"])
def test_what_a_rank_sent_before_its_end_still_arrives(on, ended, capsys, tmp_path):
    sizes = [3, 20_000] if on(2).nodes == (0, 1) else [3, 20_000, 500_000]
    expected = pytest.raises(RankError) if ended == "killed" else contextlib.nullcontext()
    with expected:
        run(last_words, 2, sizes, ended, str(tmp_path), on=on(2), checked=False)
    ones, trues = [1] * len(sizes), [True] * len(sizes)
    assert capsys.readouterr().out == f"[0] {ones} {trues}\n"


def begun_and_forgotten(comm, size):
    if comm.rank == 0:
        comm.isend(torch.ones(size), 1)  # and its wait() forgotten
        return None
    out = torch.zeros(size)
    comm.recv(out, 0)
    return out.eq(1).all().item()


def test_a_message_begun_is_sent_to_its_end_before_its_rank_ends(on):
    for size in (1, LARGE, 5 * LARGE):
        assert run(begun_and_forgotten, 2, size, on=on(2), checked=False)[1]


def cut_off(comm):
    if comm.rank == 1:
        comm.isend(torch.ones(9 * LARGE), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    print(told(comm.recv, torch.zeros(9 * LARGE), 1))


def test_half_a_message_is_no_message(on, capsys):
    with pytest.raises(RankError, match="rank 1 was ended by SIGKILL"):
        run(cut_off, 2, on=on(2))
    assert capsys.readouterr().out == (
        f"[0] PeerLost: rank 1 was lost while rank 0 was in recv from rank 1 "
        f"(float32 [{9 * LARGE}], tag 0)\n"
    )


# What nobody has asked for


def leave_it_there(comm):
    small, large = torch.zeros(2), torch.zeros(LARGE)
    if comm.rank == 0:
        handles = [comm.isend(large + 3, 1, tag=1), comm.isend(small + 4, 1, tag=2)]
        comm.send(small, 2)
        return [handle.wait() for handle in handles]
    if comm.rank == 2:
        comm.recv(small, 0)
        return comm.send(small, 1)
    comm.recv(small, 2)  # by now the large one has begun to come
    unexpected = comm._transport.receiver.matcher.unexpected
    until_heard(comm, lambda: unexpected[0])
    taken = [message.got for message in unexpected[0] if message.envelope.tag == 1]
    comm.recv(small, 0, 2)
    comm.recv(large, 0, 1)
    return taken, small.eq(4).all().item(), large.eq(3).all().item()


@pytest.mark.parametrize("checked", [True, False])
def test_a_large_message_that_nobody_asks_for_is_left_with_its_sender(on, checked):
    assert run(leave_it_there, 3, on=on(3), checked=checked)[1] == ([0], True, True)
