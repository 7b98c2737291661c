"""A stage gives back the slopes of what came in, whatever its module does with it."""

import pytest
import torch
from torch import nn

from course.parallel.pipeline.parcels import pack, tensors_of
from course.parallel.pipeline.stage import Stage

X = torch.tensor([[-1.0, 2.0]], dtype=torch.float64)


class InPlace(nn.Module):
    """Changes what came in, gives it on, beside something that needs no gradient and a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))

    def forward(self, x, unused, count):
        y = x.mul_(2).relu_()
        return y * self.weight, y, count, self.weight


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_what_came_in_may_be_changed_in_place_or_not_used(recompute, halves):
    stage, arrived = Stage(InPlace(), recompute), (X.clone().requires_grad_(),) * 2
    parcels = {0: pack((*arrived, torch.tensor(3)), "it")}
    out = stage.forward(5, parcels, tensors_of)
    assert [x.tolist() for x in out] == [[[0, 16]], [[0, 4]], 3, [3, 4]]
    slopes = [torch.ones(1, 2), torch.full((1, 2), 10.0), torch.full((2,), 100.0)]
    slopes = [slope.double() for slope in slopes]
    if halves:
        came = stage.backward_input(5, slopes)
        assert stage.module.weight.grad is None
        assert len(stage.kept) == 1
        stage.backward_weight(5)
    else:
        came = stage.backward(5, slopes)
    assert {k: x if x is None else x.tolist() for k, x in came.items()} == {0: [[0, 28]], 1: None}
    assert stage.module.weight.grad.tolist() == [100, 104]
    assert (stage.kept, stage.split) == ({}, {})


def test_without_gradients_nothing_is_kept():
    stage = Stage(nn.Linear(2, 2).double())
    with torch.no_grad():
        stage.forward(0, {0: pack(X, "it")}, tensors_of)
    assert stage.kept == {}


@pytest.mark.parametrize("halves", [False, True])
def test_a_frozen_stage_passes_slopes_on(halves):
    stage = Stage(nn.Linear(2, 2, bias=False).double().requires_grad_(False))
    parcels = {0: pack(X.clone().requires_grad_(), "it")}
    stage.forward(0, parcels, tensors_of)
    slope = [torch.ones(1, 2).double()]
    came = (stage.backward_input if halves else stage.backward)(0, slope)
    if halves:
        stage.backward_weight(0)
    torch.testing.assert_close(came[0], slope[0] @ stage.module.weight)
    assert stage.module.weight.grad is None


def test_one_tensor_given_twice_has_both_slopes():
    class Twice(nn.Module):
        def forward(self, x):
            y = x * 2
            return y, y

    stage = Stage(Twice())
    stage.forward(0, {0: pack(X.clone().requires_grad_(), "it")}, tensors_of)
    came = stage.backward(0, [torch.ones_like(X), torch.full_like(X, 10)])
    assert came[0].tolist() == [[22, 22]]
