"""Which optimizers change each number by itself is found out by trying them."""

import functools

import pytest
import torch
from torch import optim

from course.learning.training.large_batch import LAMB, LARS
from course.parallel.sharded.elementwise import require_elementwise

FINE = [
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (optim.Adam, {"amsgrad": True}), (optim.AdamW, {}), (optim.Adamax, {}), (optim.NAdam, {}),
    (optim.RAdam, {}), (optim.Adagrad, {}), (optim.Adadelta, {}), (optim.Rprop, {}),
    (optim.RMSprop, {"centered": True}), (optim.ASGD, {}), (LARS, {"lr": 0.1, "trust": None}),
    (LAMB, {"adapt": False}),
]  # fmt: skip


@pytest.mark.parametrize("kind, knobs", FINE, ids=lambda x: getattr(x, "__name__", ""))
def test_element_wise_ones_may_work_on_shards(kind, knobs):
    require_elementwise(functools.partial(kind, **knobs))


@pytest.mark.parametrize("kind, knobs", [(LARS, {"lr": 0.1}), (LAMB, {})])
def test_those_that_need_norms_or_factors_are_refused(kind, knobs):
    with pytest.raises(
        ValueError, match="needs whole tensors .norms or factors of them., and shar"
    ):
        require_elementwise(functools.partial(kind, **knobs))


@pytest.mark.parametrize("kind", [optim.Adafactor, optim.Muon, optim.LBFGS, optim.SparseAdam])
def test_those_that_cannot_step_there_are_refused_in_their_words(kind):
    with pytest.raises(
        ValueError, match="^this optimizer cannot work on shards, which are vectors: "
    ):
        require_elementwise(kind)


class NormsLater(optim.SGD):
    """Element-wise in its first two steps; from then on the rate is by the norm of each tensor."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        for p in (p for group in self.param_groups for p in group["params"]):
            p.grad *= p.detach().norm() if self.steps > 2 else 1
        return super().step(closure)


def test_one_that_begins_element_wise_is_tried_for_longer():
    with pytest.raises(ValueError, match="needs whole tensors"):
        require_elementwise(functools.partial(NormsLater, lr=0.1))


def test_to_try_one_draws_no_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    require_elementwise(optim.Adam)
    assert torch.equal(torch.rand(2), expected)
