"""Updates of a shard: by hand, against torch, and in parts of any size."""

import math

import pytest
import torch

from course.parallel.server.updates import adagrad, sgd, slower_if_stale


def steps(update, weights, gradients, factor=1):
    kept = {}
    for gradient in gradients:
        update(weights, gradient, kept, factor)
    return weights


def gradients(elements, count=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, elements, generator=generator, dtype=torch.float64)


def test_sgd_by_hand():
    moved = steps(sgd(0.5), torch.tensor([1.0, 2.0]), [torch.tensor([2.0, -4.0])], factor=0.25)
    assert moved.tolist() == [0.75, 2.5]


def test_adagrad_by_hand():
    """3 / sqrt(9), then 4 / sqrt(25); what never had a gradient stays."""
    given = [torch.tensor([3.0, 0.0]), torch.tensor([4.0, 0.0])]
    moved = steps(adagrad(0.5), torch.tensor([1.0, 7.0]), given)
    torch.testing.assert_close(moved, torch.tensor([1 - 0.5 * (1 + 0.8), 7.0]))


def test_adagrad_is_that_of_torch():
    weights = torch.nn.Parameter(torch.zeros(7, dtype=torch.float64))
    optimiser = torch.optim.Adagrad([weights], lr=0.1, eps=0)
    for gradient in gradients(7):
        weights.grad = gradient
        optimiser.step()
    moved = steps(adagrad(0.1), torch.zeros(7, dtype=torch.float64), gradients(7))
    torch.testing.assert_close(moved, weights.detach(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("update", [sgd(0.1), adagrad(0.1)])
@pytest.mark.parametrize("sizes", [(3, 4), (0, 7), (1, 5, 1)])
def test_parts_move_as_the_whole_does(update, sizes):
    whole = steps(update, torch.ones(7, dtype=torch.float64), gradients(7))
    parts = [steps(update, torch.ones(size, dtype=torch.float64), part)
             for size, part in zip(sizes, gradients(7).split(sizes, dim=1))]  # fmt: skip
    assert torch.equal(torch.cat(parts), whole)


def test_the_factor_of_a_stale_gradient():
    assert [slower_if_stale(age) for age in (0, 1, 2, 4)] == [1, 1, 0.5, 0.25]


@pytest.mark.parametrize("rate", [0, -1, math.nan, "fast"])
@pytest.mark.parametrize("update", [sgd, adagrad])
def test_rates_that_cannot_be(update, rate):
    with pytest.raises(ValueError, match=f"a server's rate is a number above 0, not {rate!r}"):
        update(rate)
