"""The plan by which tokens travel: by hand, against its formula, and as its own adjoint."""

import pytest
import torch

from course.parallel.experts.dispatch import capacity_of, dispatch_plan, exchanged
from course.worlds import run

ASKED = [[3, 0, 2], [1, 0, 4]]


def test_a_plan_by_hand():
    plan = dispatch_plan(ASKED)
    assert plan.cuts == (0, 2, 3)  # experts 0 and 1 on rank 0, expert 2 on rank 1
    assert plan.sent(0) == [3, 2] and plan.sent(1) == [1, 4]
    assert plan.received(0) == [3, 1] and plan.received(1) == [2, 4]
    assert plan.blocks(0) == [[3, 0], [1, 0]]
    assert plan.tokens == [4, 0, 6] and plan.dropped == [0, 0, 0]
    assert plan.imbalance == pytest.approx(6 / (10 / 3))


def test_capacity_takes_the_first_ranks_tokens_first():
    plan = dispatch_plan(ASKED, capacity=3)
    assert plan.kept == [[3, 0, 2], [0, 0, 1]]
    assert plan.tokens == [3, 0, 3] and plan.dropped == [1, 0, 3]
    assert dispatch_plan([[5], [2], [1]], capacity=4).kept == [[4], [0], [0]]
    assert dispatch_plan([[0, 0], [0, 0]]).imbalance == 1.0
    assert capacity_of(1.25, 2, 64, 8) == 20 and capacity_of(1.0, 1, 10, 4) == 3
    assert capacity_of(1.1, 1, 100, 10) == 11  # 1.1 * 100 / 10 is a little more in floats


def rows(counts, rank, width=3):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(sum(counts), width, generator=generator, dtype=torch.float64)


def there(comm, asked):
    """What arrives, what it was made of, <F x, y> and <x, F* y>, and what was sent."""
    plan = dispatch_plan(asked)
    sent, received = plan.sent(comm.rank), plan.received(comm.rank)
    x = rows(sent, comm.rank).t().contiguous().t().requires_grad_()
    y = rows(received, 100 + comm.rank)
    before = comm.meter.sent_bytes
    arrived = exchanged(comm, x, sent, received, True)
    sent_bytes = comm.meter.sent_bytes - before
    (arrived * y).sum().backward()
    both = float((arrived * y).sum()), float((x * x.grad).sum())
    return arrived.detach(), both, sent_bytes, comm.meter.sent_bytes - before


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_rows_go_where_the_plan_says_and_slopes_come_back(ranks):
    generator = torch.Generator().manual_seed(ranks)
    asked = torch.randint(0, 5, (ranks, ranks + 2), generator=generator).tolist()
    asked[-1] = [0] * (ranks + 2)
    plan = dispatch_plan(asked)
    told = run(there, ranks, asked, timeout=5)
    for rank, (arrived, _, sent_bytes, both_bytes) in enumerate(told):
        sources = [rows(plan.sent(r), r).split(plan.sent(r))[rank] for r in range(ranks)]
        assert torch.equal(arrived, torch.cat(sources))
        assert sent_bytes == plan.there_and_back(24, 0).sent_bytes[rank]
        assert both_bytes == plan.there_and_back(24, 24).sent_bytes[rank]
    forward, adjoint = (sum(each) for each in zip(*[both for _, both, *_ in told]))
    assert forward == pytest.approx(adjoint, rel=1e-13)


def unwanted(comm):
    """Of two ranks one wants no slope, and takes part all the same."""
    x = torch.ones(2, 1, requires_grad=comm.rank == 0)
    back = exchanged(comm, x, [1, 1], [1, 1], True)
    (back.sum() * (1 + comm.rank)).backward()
    nobody = exchanged(comm, torch.ones(2, 1), [1, 1], [1, 1], False)
    return None if x.grad is None else x.grad.tolist(), nobody.requires_grad


def test_a_rank_that_wants_no_slope_sends_the_others_theirs():
    assert run(unwanted, 2, timeout=5) == [([[1.0], [2.0]], False), (None, False)]


def twice(comm):
    """The slope of a slope: of sum(F(x)^2 / 2)."""
    x = torch.full((2, 1), 3.0, dtype=torch.float64, requires_grad=True)
    y = exchanged(comm, x, [1, 1], [1, 1], True)
    (slope,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    slope.sum().backward()
    return x.grad.tolist()


def test_a_slope_has_a_slope():
    assert run(twice, 2, timeout=5) == [[[18.0], [18.0]]] * 2
