"""The life of imagined ranks: alike in every run, ended by errors, interrupts and death."""

import random

import numpy
import pytest
import torch
from torch.autograd import Variable

from course.cluster.fabric import coates_2013
from course.collectives import all_gather, all_reduce
from course.comm import Trace
from course.worlds import RankError, run, simulated
from tests.worlds.simulator.clusters import slowly, switched


def busy(comm):
    draws = [random.random(), numpy.random.rand(), torch.rand(1).item()]
    x = torch.full((1001,), float(comm.rank))
    all_reduce(comm, x)
    everyone = [torch.zeros(3) for _ in range(comm.size)]
    all_gather(comm, everyone, torch.tensor(draws))
    return x[0].item(), everyone[0].tolist(), comm.clock()


def test_two_runs_are_identical_and_so_are_their_traces():
    def once():
        trace, world = Trace(), simulated(coates_2013(4), jitter=0.3)
        values = run(busy, 16, on=world, trace=trace)
        return values, trace.events, world.report.critical_path(), world.report.links

    assert once() == once()


def chain(comm, dies):
    """Everyone hears from the rank before and tells the next; a message takes two seconds."""
    x = torch.zeros(100, dtype=torch.uint8)
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    if comm.rank < comm.size - 1:
        comm.send(x, comm.rank + 1)


def test_a_dead_rank_fails_at_its_second_and_those_who_wait_hear_of_it():
    trace = Trace()
    with pytest.raises(RankError) as caught:
        run(chain, 4, 3.5, on=slowly(4, dead={1: 3.5}), trace=trace, checked=False)
    error = caught.value
    assert error.rank == 1
    assert error.failures == {
        1: "PeerLost: rank 1 died at 3.5 s, as its world has it",
        2: "PeerLost: rank 1 was lost while rank 2 was in recv from rank 1 (uint8 [100], tag 0)",
        3: "PeerLost: rank 2 was lost while rank 3 was in recv from rank 2 (uint8 [100], tag 0)",
    }
    assert trace.sent_messages == [1, 0, 0, 0]


def thirty_seconds(op, flops, nbytes, device):
    return 30.0 if op == "zeros" and nbytes == 4 else 0.0


def computes_for_ever(comm):
    while comm.rank == 1:
        torch.zeros(1)


def test_a_rank_dies_while_it_computes():
    with pytest.raises(RankError, match="rank 1 died at 45 s, as its world has it"):
        run(computes_for_ever, 2, on=slowly(2, dead={1: 45}, charge=thirty_seconds))


def interrupted_on_the_way(comm, interrupt):
    """Rank 3 has its short message while the long one is still on its way."""
    long, short = torch.zeros(100, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    x = long if comm.rank < 2 else short
    comm.recv(x, comm.rank - 1) if comm.rank % 2 else comm.send(x, comm.rank + 1)
    if interrupt and comm.rank == 3:
        raise KeyboardInterrupt
    return comm.clock()


def test_an_interrupted_run_leaves_nothing_on_the_links():
    world = slowly(4)
    seconds = run(interrupted_on_the_way, 4, False, on=world, checked=False)
    with pytest.raises(KeyboardInterrupt):
        run(interrupted_on_the_way, 4, True, on=world, checked=False)
    assert run(interrupted_on_the_way, 4, False, on=world, checked=False) == seconds


def fails_in_torch(comm):
    a = torch.ones(2, 3)
    comm.barrier()
    return a @ a


def test_errors_point_to_the_line_of_the_program():
    with pytest.raises(RankError) as caught:
        run(fails_in_torch, 2, on=switched(2))
    assert [function for _, _, function in caught.value.stack] == ["fails_in_torch"]
    assert "return a @ a" in str(caught.value) and "course/comm" not in str(caught.value)


def interrupted(comm):
    comm.barrier()
    if comm.rank == 1:
        raise KeyboardInterrupt
    comm.barrier()


def test_an_interrupt_ends_the_run_and_leaves_nothing_behind():
    before = random.random, numpy.random.rand, torch.manual_seed, Variable._execution_engine
    with pytest.raises(KeyboardInterrupt):
        run(interrupted, 3, on=switched(3))
    after = random.random, numpy.random.rand, torch.manual_seed, Variable._execution_engine
    assert after == before and torch.is_grad_enabled()
    assert torch._C._len_torch_dispatch_stack() == 0
