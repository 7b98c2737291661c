"""What all ranks have alike: f and g are each other's adjoint, and g g is the sum."""

import pytest
import torch

from course.parallel.array.replicated import copied, summed
from course.worlds import run
from tests.parallel.array.test_fetch import drawn, off


def both_ways(comm):
    x = drawn(3, seed=0).requires_grad_()
    own = drawn(3, seed=1 + comm.rank)
    (summed(comm, (copied(comm, x) * own).sum())).backward()
    expected = sum(drawn(3, seed=1 + rank) for rank in range(comm.size))
    return off(x.grad - expected)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_slope_of_what_all_use_is_the_sum_of_all_uses(ranks):
    assert max(run(both_ways, ranks, timeout=5)) < 1e-12


def adjoint(comm):
    """<f x, y> = <x, f* y>: f copies x to all ranks, f* adds up their y."""
    x, y = drawn(4), drawn(4, seed=1 + comm.rank)
    there = summed(comm, (copied(comm, x) * y).sum())
    back = (x * summed(comm, y)).sum()
    return off(there - back)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_adding_up_is_the_adjoint_of_copying(ranks):
    assert max(run(adjoint, ranks, timeout=5)) < 1e-12


def nothing_is_sent(comm):
    copied(comm, torch.ones(3))
    copied(comm, torch.ones(3).requires_grad_())
    return comm.meter.sent_messages


def test_copying_costs_nothing_on_the_way_there():
    assert run(nothing_is_sent, 2, timeout=5) == [0, 0]
