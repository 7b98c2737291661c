"""Whoever computes with weights that are not there is told so."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from course.parallel.sharded.freed import Freed, without_values


def freed(shape=(2, 3), dtype=torch.float32):
    p = nn.Parameter(torch.ones(shape, dtype=dtype))
    p.data = without_values(p)
    p.__class__ = type("Freed", (Freed,), {"sentence": "not here"})
    return p


def test_it_has_its_shape_and_nothing_else():
    p = freed()
    assert (p.shape, p.numel(), p.dtype, p.requires_grad) == ((2, 3), 6, torch.float32, True)
    assert p.untyped_storage().nbytes() == 4 and isinstance(p, nn.Parameter)
    p.requires_grad_(False)
    assert not p.requires_grad and p.grad is None and p in {p: 1}


@pytest.mark.parametrize(
    "use",
    [
        lambda p: functional.linear(torch.ones(1, 3), p),
        lambda p: functional.embedding(torch.tensor([1]), p),
        lambda p: p + 1, lambda p: p.detach(), lambda p: p.clone(), lambda p: p.tolist(),
        lambda p: torch.cat([torch.ones(2, 3), p]), lambda p: torch.ones(2, 3).add_(p),
        copy.deepcopy, pickle.dumps,
    ],
)  # fmt: skip
def test_every_use_of_it_is_refused(use):
    with pytest.raises(RuntimeError, match=r"^not here \(\w+\)$"):
        use(freed())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_beyond_python_it_is_nan(dtype):
    p = freed(dtype=dtype)
    p.__class__ = nn.Parameter
    assert p.isnan().all()
