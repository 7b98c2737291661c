"""Calls that run beside a rank's own work: the same values, errors where they are waited for."""

import sys
import threading

import pytest
import torch

from course.collectives import all_gather, all_reduce
from course.comm import ANY, CommMismatch, Trace
from course.worlds import RankError, run
from course.worlds.sockets.background_thread import SWITCH_S
from tests.collectives.serial import values

PRIME = 1_500_007


def several_at_once(comm, elements):
    """Sums beside one another and beside messages of the rank's own, five times."""
    found = []
    for turn in range(5):
        xs = [values((elements,), torch.float32, comm.rank, part, turn) for part in range(3)]
        begun = [comm.submit(all_reduce, x) for x in xs]
        theirs, right = torch.empty(elements), (comm.rank + 1) % comm.size
        left = (comm.rank - 1) % comm.size
        comm.exchange(values((elements,), torch.float32, comm.rank, 7, turn), right, theirs, left)
        mine = values((elements,), torch.float32, comm.rank, 8, turn)
        all_reduce(comm, mine)
        for handle in begun:
            handle.wait()
        for part, x in [*enumerate(xs), (8, mine)]:
            every = [values((elements,), torch.float32, r, part, turn) for r in range(comm.size)]
            found.append(torch.equal(x, sum(every)))
        found.append(torch.equal(theirs, values((elements,), torch.float32, left, 7, turn)))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("elements", [0, 5, PRIME])
def test_calls_beside_one_another_and_beside_messages(on, ranks, elements):
    assert run(several_at_once, ranks, elements, on=on(ranks)) == [[True] * 25] * ranks


def in_order(comm):
    """What begun calls append, each by itself, and what they return."""
    seen = []
    begun = [comm.submit(lambda c, i: seen.append((i, c.rank, c.size)) or i, i) for i in range(20)]
    return [handle.wait() for handle in begun], seen, comm.rank


def test_one_after_another_in_the_order_begun():
    for returned, seen, rank in run(in_order, 2):
        assert returned == list(range(20))
        assert seen == [(i, rank, 2) for i in range(20)]


def meets_while_it_computes(comm):
    """Two ranks sum beside while the rank's own thread never waits; then it looks."""
    x = torch.ones(1 << 20)
    handle = comm.submit(all_reduce, x)
    while not handle._task.done.is_set():
        torch.ones(1000).sum()
    return x.sum().item()


def test_what_was_begun_moves_while_the_rank_computes():
    assert run(meets_while_it_computes, 2) == [2.0 * (1 << 20)] * 2


def beside_each_group(comm):
    """A group's own begun calls, and a group made beside."""
    x, y = torch.tensor([float(comm.rank)]), torch.tensor([1.0])
    pair = comm.split(comm.rank // 2)
    first, second = pair.submit(all_reduce, x), comm.submit(sum_in_pairs, y)
    first.wait(), second.wait()
    return x.item(), y.item()


def sum_in_pairs(comm, y):
    all_reduce(comm.split(comm.rank % 2), y)


def test_groups_beside():
    assert run(beside_each_group, 4) == [(1.0, 2.0), (1.0, 2.0), (5.0, 2.0), (5.0, 2.0)]


def no_grad_beside(comm):
    with torch.no_grad():
        off = comm.submit(lambda c: torch.is_grad_enabled())
    return off.wait(), comm.submit(lambda c: torch.is_grad_enabled()).wait()


def test_the_grad_mode_goes_along():
    assert run(no_grad_beside, 1) == [(False, True)]


def counted(comm, aside):
    x = torch.ones(64)
    comm.submit(all_reduce, x).wait() if aside else all_reduce(comm, x)
    return comm.meter.sent_bytes, comm.meter.sent_messages, len(comm.events)


def test_messages_beside_are_metered_and_traced():
    assert run(counted, 3, True, trace=Trace()) == run(counted, 3, False, trace=Trace())


def switching(comm):
    """The process's switch interval before, during and after two threads' calls."""
    before, group = sys.getswitchinterval(), comm.split(0)
    begun = [
        c.submit(lambda _: round(sys.getswitchinterval(), 6))
        for c in (comm, group)
        for _ in range(3)
    ]
    during = {call.wait() for call in begun}
    return during, sys.getswitchinterval() == before


def test_threads_switch_faster_only_while_calls_run_in_the_background():
    """The first call in the background set it for the whole process, for good."""
    assert run(switching, 2) == [({SWITCH_S}, True)] * 2


def failing(comm, wait):
    def fail(comm):
        raise ArithmeticError(f"rank {comm.rank} of {comm.size}")

    handle = comm.submit(fail)
    if wait:
        with pytest.raises(ArithmeticError, match=f"rank {comm.rank} of 2"):
            handle.wait()
        with pytest.raises(ArithmeticError):
            handle.wait()
    return "went on"


def test_an_error_is_raised_where_it_is_waited_for():
    assert run(failing, 2, True) == ["went on"] * 2


def test_an_error_that_nobody_waited_for_is_not_lost():
    with pytest.raises(RankError, match="ArithmeticError: rank 0 of 2"):
        run(failing, 2, False)


def never_waited_for(comm):
    x = torch.ones(PRIME)
    comm.submit(all_reduce, x)
    return x


def test_what_nobody_waits_for_is_finished_first():
    run(never_waited_for, 3)


def unequal(comm):
    x = torch.ones(3 + comm.rank)
    try:
        comm.submit(all_reduce, x).wait()
    except CommMismatch as error:
        return str(error)


def test_a_mismatch_beside_names_the_ranks():
    call = "is in all_reduce #1 in world, in the background (float32"
    sentence = f"rank 0 {call} [3], op sum, by ring); rank 1 {call} [4], op sum, by ring)"
    assert run(unequal, 2) == [sentence] * 2


def alone(comm):
    if comm.rank == 0:
        comm.submit(all_reduce, torch.ones(3)).wait()
    comm.recv(torch.empty(1), 0)


def test_a_call_that_only_one_rank_begins_times_out():
    with pytest.raises(RankError, match="waited 0.5 s in all_reduce #1 in world, in the"):
        run(alone, 2, timeout=0.5)


def ahead(comm):
    """Rank 0 has begun a sum long before rank 1, whose message it then answers: no mismatch."""
    x, y = torch.ones(3), torch.zeros(1)
    if comm.rank == 0:
        handle = comm.submit(all_reduce, x)
        comm.recv(y, 1)
        comm.send(y + 1, 1)
    else:
        comm.send(y, 0)
        comm.recv(y, 0)
        handle = comm.submit(all_reduce, x)
    handle.wait()
    return x[0].item(), y.item()


def test_a_rank_may_be_ahead_beside():
    assert run(ahead, 2) == [(2.0, 0.0), (2.0, 1.0)]


def storm(comm, seed):
    """Two threads' worth of messages of all lengths, in two orders."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 300_000, (30,), generator=generator).tolist()
    beside = comm.submit(swap_all, lengths)
    return swap_all(comm, lengths[::-1]), beside.wait()


def swap_all(comm, lengths):
    right, left, good = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, []
    for number, length in enumerate(lengths):
        x, y = values((length,), torch.float32, comm.rank, number), torch.empty(length)
        comm.exchange(x, right, y, left if number % 3 else ANY, tag=number)
        good.append(torch.equal(y, values((length,), torch.float32, left, number)))
    return all(good)


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_messages_in_two_threads(on, seed):
    assert run(storm, 3, seed, on=on(3)) == [(True, True)] * 3


def gathered_beside(comm):
    outs = [torch.empty(2) for _ in range(comm.size)]
    comm.submit(all_gather, outs, torch.full((2,), float(comm.rank))).wait()
    return [out[0].item() for out in outs], threading.active_count()


def test_one_thread_is_enough():
    for got, threads in run(gathered_beside, 3):
        assert got == [0.0, 1.0, 2.0]
        assert threads == 2
