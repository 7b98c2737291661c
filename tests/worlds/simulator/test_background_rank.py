"""Calls beside a rank's own work on an imagined cluster: values, seconds, errors."""

import contextlib
import json

import pytest
import torch

from course.collectives import all_reduce, cost
from course.comm import PeerLost
from course.worlds import RankError, run
from tests.worlds.simulator.clusters import ALPHA_S, BETA_S, slowly, switched
from tests.worlds.sockets import test_background_thread as on_processes

EXACT = {"rel": 1e-9, "abs": 0}
DRILLS = {  # of the tests on processes: name, ranks, arguments
    "several_at_once": (3, (1001,)),
    "in_order": (2, ()),
    "beside_each_group": (4, ()),
    "no_grad_beside": (1, ()),
    "failing": (2, (True,)),
    "unequal": (2, ()),
    "ahead": (2, ()),
    "storm": (3, (1,)),
}


@pytest.mark.parametrize("name", DRILLS)
def test_what_holds_for_processes_holds_here(name):
    ranks, args = DRILLS[name]
    fn = getattr(on_processes, name)
    here, there = run(fn, ranks, *args, on=switched(ranks)), run(fn, ranks, *args)
    assert str(here) == str(there)


def test_an_error_that_nobody_waited_for_is_not_lost():
    with pytest.raises(RankError, match="ArithmeticError: rank 0 of 2"):
        run(on_processes.failing, 2, False, on=switched(2))


def computes(op, flops, nbytes, device):
    """torch.zeros(n) of bytes takes n milliseconds, all else nothing."""
    return nbytes / 1000 if op == "zeros" else 0.0


def busy(milliseconds):
    torch.zeros(milliseconds, dtype=torch.uint8)


def overlapping(comm, nbytes, milliseconds):
    handle = comm.submit(all_reduce, torch.empty(nbytes, dtype=torch.uint8))
    busy(milliseconds)
    handle.wait()
    return comm.clock()


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("milliseconds", [0, 1, 2, 50])
def test_beside_one_another_take_the_longer_of_the_two_not_their_sum(ranks, milliseconds):
    nbytes = 840 * 15_000
    theory = cost.ring_all_reduce(ranks, nbytes, 1).seconds(ALPHA_S, BETA_S)
    assert 0.001 < theory < 0.002
    world = switched(ranks, charge=computes)
    seconds = run(overlapping, ranks, nbytes, milliseconds, on=world)
    assert seconds == pytest.approx([max(theory, milliseconds / 1000)] * ranks, **EXACT)
    assert world.report.seconds == max(seconds)


def hundred():
    return torch.empty(100, dtype=torch.uint8)


def passes_on(comm):
    """To the right; two seconds on a slow switch."""
    comm.exchange(hundred(), (comm.rank + 1) % comm.size, hundred(), (comm.rank - 1) % comm.size)
    return comm.clock()


def one_after_another(comm):
    begun = [comm.submit(passes_on), comm.submit(passes_on)]
    busy(9000)
    begun.append(comm.submit(passes_on))
    return [handle.wait() for handle in begun], comm.clock()


def test_a_queue_is_served_in_order_and_never_before_it_was_begun():
    ends = [2.0, 4.0, 11.0], 11.0
    assert run(one_after_another, 3, on=slowly(3, charge=computes), checked=False) == [ends] * 3


def computes_beside(comm):
    handle = comm.submit(lambda comm: busy(2000))
    busy(3000)
    handle.wait()
    return comm.clock()


def test_what_computes_beside_has_a_clock_of_its_own_and_a_slow_rank_is_slow_there_too():
    world = slowly(2, charge=computes, slow={1: 2.0})
    assert run(computes_beside, 2, on=world) == [3.0, 6.0]
    assert [rank.computed_bytes for rank in world.report.ranks] == [5000, 5000]


def waits_for_the_queue(comm):
    handle = comm.submit(passes_on)
    if comm.rank == 0:
        busy(1000)
    handle.wait()


def test_the_record_goes_from_one_course_of_events_to_the_other(tmp_path):
    world = slowly(2, charge=computes)
    run(waits_for_the_queue, 2, on=world, checked=False)
    told = [(r.start, r.end, r.cause.partition(" gpu")[0]) for r in world.report.critical_path()]
    assert told == [(0, 1, "latency"), (1, 2, "link")]
    assert [rank.waiting_s for rank in world.report.ranks] == [1.0, 2.0]
    world.report.save(tmp_path / "trace.json")
    spans = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["tid"] for e in spans if e["ph"] == "X" and e["pid"] == 0} == {0, 1, 2, 3}


def never_told(comm):
    """Each waits beside for what the other sends only after that."""
    comm.submit(lambda comm: comm.recv(hundred(), 1 - comm.rank)).wait()


def test_a_deadlock_beside_is_told_at_once():
    with pytest.raises(RankError) as caught:
        run(never_told, 2, on=slowly(2), timeout=None)
    sentence = str(caught.value)
    assert "rank 0 waits for rank 1 in recv from rank 1 (uint8 [100], tag 0)" in sentence
    assert "2 more wait for these" in sentence  # for what they have begun


def dies_beside(comm):
    handle = comm.submit(lambda comm: [passes_on(comm) for _ in range(9)])
    handle.wait()


def test_a_rank_dies_with_all_that_it_has_begun():
    with pytest.raises(RankError, match="rank 1 died at 5 s, as its world has it"):
        run(dies_beside, 3, on=slowly(3, dead={1: 5}))


def tells_rank_0(comm):
    with contextlib.suppress(PeerLost):
        comm.recv(hundred(), 2)
    comm.send(hundred(), 0)


def fails_before_what_it_has_begun(comm):
    """Rank 1 fails at once, ranks 2 and 3 return after seconds; 0 hears of both, not of 1."""
    if comm.rank == 1:
        comm.submit(tells_rank_0)
        comm.barrier()
        raise ArithmeticError
    comm.barrier()
    if comm.rank:
        torch.zeros(comm.rank * 1000)
        return comm.send(hundred(), 0)
    comm.recv(hundred(), 2)
    comm.recv(hundred(), 3)
    beside = comm.submit(lambda comm: comm.recv(hundred(), 1))
    with pytest.raises(PeerLost, match="rank 1 was lost"):
        beside.wait()


def sends_beside(comm):
    """Rank 1 fails when what it has begun has sent already, by a clock that is ahead."""
    if comm.rank == 1:
        comm.submit(lambda comm: (torch.zeros(1000), comm.send(hundred(), 0)))
        comm.recv(hundred(), 0)
        raise ArithmeticError
    if comm.rank == 2:
        torch.zeros(2000)
        return comm.send(hundred(), 0)
    comm.send(hundred(), 1)
    comm.recv(hundred(), 2)
    beside = comm.submit(lambda comm: comm.recv(hundred(), 1))
    with pytest.raises(PeerLost, match="rank 1 was lost"):
        beside.wait()


@pytest.mark.parametrize("fn, ranks", [(fails_before_what_it_has_begun, 4), (sends_beside, 3)])
def test_what_a_lost_rank_has_begun_stops_with_it_and_what_it_sent_never_comes(fn, ranks):
    with pytest.raises(RankError, match="rank 1 failed: ArithmeticError") as caught:
        run(fn, ranks, on=switched(ranks, charge=computes), checked=False)
    assert caught.value.failures.keys() == {1}  # rank 0 has seen what it had to see


def gradients_beside(comm):
    """An all-reduce begun in the middle of a backward pass, as soon as a gradient is there."""
    begun, w = [], torch.ones(3, requires_grad=True)
    w.register_hook(lambda grad: begun.append((grad, comm.submit(all_reduce, grad))))
    (w.exp() * (comm.rank + 1)).sum().backward()
    for _, handle in begun:
        handle.wait()
    return begun[0][0].tolist()


def test_calls_may_begin_in_a_backward_pass():
    total = (6 * torch.ones(3).exp()).tolist()
    assert run(gradients_beside, 3, on=switched(3)) == [pytest.approx(total)] * 3
