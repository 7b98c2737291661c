"""Ranks that wait in vain learn why: time-outs in the cluster's time, deadlocks at once."""

import time

import pytest
import torch

from course.comm import ANY, CommTimeout, PeerLost
from course.worlds import RankError, run
from tests.collectives.test_errors import DISAGREEMENTS, disagree
from tests.worlds.simulator.clusters import slowly, switched


def failures(fn, ranks, *args, on=None, **options):
    with pytest.raises(RankError) as caught:
        run(fn, ranks, *args, on=on or slowly(ranks), **options)
    return caught.value.failures


def ring_of_sends(comm):
    comm.send(torch.zeros(3), (comm.rank + 1) % comm.size)
    comm.recv(torch.zeros(3), (comm.rank - 1) % comm.size)


def test_a_deadlock_is_told_at_once_with_who_waits_for_whom():
    before = time.monotonic()
    said = failures(ring_of_sends, 3, timeout=None)
    assert time.monotonic() - before < 20
    assert set(said.values()) == {
        "Deadlock: "
        "rank 0 waits for rank 1 in send to rank 1 (float32 [3], tag 0); "
        "rank 1 waits for rank 2 in send to rank 2 (float32 [3], tag 0); "
        "rank 2 waits for rank 0 in send to rank 0 (float32 [3], tag 0)"
    }
    assert run(ring_of_sends, 3, on=slowly(3), checked=False) == [None] * 3  # buffered


def circle_and_tail(comm):
    x = torch.zeros(2)
    with comm.collective("talk"):
        comm.recv(x, {0: 1, 1: 0, 2: 1, 3: 2}[comm.rank], tag=7)


def test_a_deadlock_names_the_circle_and_counts_the_others():
    (sentence,) = set(failures(circle_and_tail, 4, timeout=None).values())
    assert sentence == (
        "Deadlock: "
        "rank 0 waits for rank 1 in recv from rank 1 (float32 [2], tag 7) within talk #1; "
        "rank 1 waits for rank 0 in recv from rank 0 (float32 [2], tag 7) within talk #1; "
        "2 more wait for these"
    )


def to_myself(comm):
    comm.recv(torch.zeros(2), comm.rank)


def test_a_rank_can_wait_for_itself():
    said = failures(to_myself, 1)
    assert said[0] == "Deadlock: rank 0 waits for rank 0 in recv from rank 0 (float32 [2], tag 0)"


def meets_nobody(comm):
    try:
        comm.recv(torch.zeros(3), (comm.rank + 1) % comm.size)
    except CommTimeout as error:
        comm.barrier()
        return type(error).__name__


def test_who_has_heard_of_a_deadlock_can_go_on():
    assert run(meets_nobody, 3, on=slowly(3)) == ["Deadlock"] * 3


def thirty_seconds(op, flops, nbytes, device):
    return 30.0 if op == "zeros" and nbytes == 4 else 0.0


def late(comm):
    x = torch.empty(1, dtype=torch.uint8)
    if comm.rank == 0:
        torch.zeros(1)
        comm.send(x, 1)
        return comm.clock()
    try:
        comm.recv(x, 0)
    except CommTimeout as error:
        comm.recv(x, 0)
        return str(error), comm.clock()


def test_time_outs_are_of_the_cluster_s_time_and_who_was_late_is_heard_afterwards():
    before = time.monotonic()
    sent, (told, received) = run(late, 2, on=slowly(2, charge=thirty_seconds), timeout=20)
    assert time.monotonic() - before < 15
    assert told == "rank 1 waited 20 s in recv from rank 0 (uint8 [1], tag 0)"
    assert sent == received == 31.01
    assert run(late, 2, on=slowly(2, charge=thirty_seconds), timeout=None) == [31.01, None]


def one_long_message(comm):
    x = torch.empty(10_000, dtype=torch.uint8)
    comm.send(x, 1) if comm.rank == 0 else comm.recv(x, 0)
    return comm.clock()


def test_a_slow_message_is_not_a_hanging_one():
    assert run(one_long_message, 2, on=slowly(2), timeout=20) == [101.0] * 2


def returns_early(comm):
    if comm.rank == 1:
        return
    comm.recv(torch.zeros(3), 1 if comm.rank == 0 else ANY)


def test_a_rank_that_has_returned_is_named():
    assert failures(returns_early, 3) == {
        0: "PeerLost: rank 1 has returned from its function while rank 0 was in "
        "recv from rank 1 (float32 [3], tag 0)",
        2: "PeerLost: rank 0 was lost while rank 2 was in recv from any rank (float32 [3], tag 0)",
    }


def goes_on_without(comm):
    x = torch.zeros(3)
    if comm.rank == 1:
        raise ArithmeticError("enough")
    if comm.rank == 0:
        with pytest.raises(PeerLost, match="rank 1 was lost while rank 0 was in recv from any"):
            comm.recv(x, ANY)
        return comm.recv(x, ANY), comm.clock()
    torch.zeros(1)
    comm.send(x, 0)


def test_the_loss_of_one_is_told_once_to_who_waits_for_any():
    said = failures(goes_on_without, 3, on=slowly(3, charge=thirty_seconds), timeout=None)
    assert said == {1: "ArithmeticError: enough"}


def sends_and_dies(comm):
    x = torch.zeros(100)
    if comm.rank == 1:
        comm.isend(x, 0)
        torch.zeros(1)
    elif comm.rank == 2:
        torch.zeros(1)
        comm.send(x, 0)
    else:
        with pytest.raises(PeerLost, match="rank 1 was lost") as caught:
            comm.recv(x, ANY)
        assert caught.value.ranks == (1,) and comm.recv(x, ANY) == 2


def test_what_a_rank_had_on_its_way_when_it_died_is_in_nobody_s_way():
    world = slowly(3, charge=thirty_seconds, dead={1: 2.0})
    assert failures(sends_and_dies, 3, on=world, timeout=None).keys() == {1}


def test_disagreements_are_told_in_the_words_of_processes():
    here = run(disagree, 3, DISAGREEMENTS, on=switched(3))
    assert here == run(disagree, 3, DISAGREEMENTS)


def one_does_not_come(comm):
    if comm.rank == 1:
        comm.recv(torch.zeros(3), 0, tag=4)
    comm.barrier()


def test_who_waits_for_those_who_meet_is_told():
    (sentence,) = set(failures(one_does_not_come, 3).values())
    assert sentence == (
        "CommMismatch: rank 1 is in recv from rank 0 (float32 [3], tag 4); "
        "ranks 0, 2 are in barrier #1"
    )


def one_sends(comm):
    """Ranks 2 and 3, if they are there, are busy with a message of 31 seconds."""
    long = torch.empty(3000, dtype=torch.uint8)
    if comm.rank == 2 and comm.size > 3:
        comm.recv(long, 3)
    if comm.rank == 3:
        comm.send(long, 2)
    comm.send(torch.zeros(3), 0, tag=4) if comm.rank == 1 else comm.barrier()


@pytest.mark.parametrize("ranks, others", [(3, "ranks 0, 2 are"), (4, "rank 0 is")])
def test_a_send_to_who_waits_in_a_collective_is_told_as_a_mismatch(ranks, others):
    """At once where nothing else moves, and at the latest instead of a time-out."""
    said = failures(one_sends, ranks, timeout=20)
    told = {"rank 1 is in send to rank 0 (float32 [3], tag 4)", f"{others} in barrier #1"}
    assert said[0] == said[1] and said[0].startswith("CommMismatch: ")
    assert set(said[0].removeprefix("CommMismatch: ").split("; ")) == told


def one_leaves(comm):
    if comm.rank != 2:
        comm.barrier()


def test_who_waits_in_a_collective_for_one_that_has_returned_is_told():
    said = failures(one_leaves, 3)
    assert (
        said[0] == "PeerLost: rank 2 has returned from its function while rank 0 was in barrier #1"
    )
