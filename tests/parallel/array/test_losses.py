"""Losses and softmax of arrays: what they are of the whole, and what they refuse."""

import functools

import pytest
import torch
from torch.nn import functional

from course.parallel.array import DistributedArray, part
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn, off

TARGETS = torch.randint(4, (3, 6, 5), generator=torch.Generator().manual_seed(0))
LOSSES = {
    "mean": lambda x: functional.cross_entropy(x, TARGETS),
    "sum": lambda x: functional.cross_entropy(x, TARGETS, reduction="sum"),
    "ignored": lambda x: functional.cross_entropy(x, TARGETS, ignore_index=2),
    "weights": lambda x: functional.cross_entropy(x, TARGETS, torch.arange(1.0, 5).double()),
    "smoothed": lambda x: functional.cross_entropy(x, TARGETS, label_smoothing=0.2),
    "each": lambda x: functional.cross_entropy(x, TARGETS, reduction="none").square().sum(),
    "squares": lambda x: functional.mse_loss(x, drawn(3, 4, 6, 5, seed=1)),
    "their sum": lambda x: functional.mse_loss(x, drawn(3, 4, 6, 5, seed=1), reduction="sum"),
    "softmax": lambda x: (x.softmax(1) * drawn(3, 4, 6, 5, seed=1)).sum(),
    "its logarithm": lambda x: (torch.log_softmax(x, dim=1) * drawn(4, 6, 5)).sum(),
}
GRIDS = {1: (1, 1, 1, 1), 2: (2, 1, 1, 1), 3: (1, 1, 1, 3), 4: (1, 1, 2, 2)}


def compared(comm):
    errors, whole = {}, drawn(3, 4, 6, 5)
    for name, loss in LOSSES.items():
        x, array = whole.clone().requires_grad_(), part(comm, whole, GRIDS[comm.size])
        array.local.requires_grad_()
        expected, found = loss(x), loss(array)
        (slope,), (mine,) = (torch.autograd.grad(each, [given])
                             for each, given in ((expected, x), (found, array.local)))  # fmt: skip
        back = DistributedArray(comm, mine, array.layout).gather()
        errors[name] = max(off(found - expected), off(back - slope))
    return errors


@functools.cache
def errors(ranks):
    """Of all losses, in one run."""
    return run(compared, ranks, timeout=60)


@pytest.mark.parametrize("ranks", GRIDS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_slope_are_those_of_the_whole(name, ranks):
    assert max(each[name] for each in errors(ranks)) < 1e-12


def refused(comm, how):
    classes, places = (part(comm, drawn(2, 4, 4), grid) for grid in ((1, 2, 1), (1, 1, 2)))
    {
        "classes": lambda: functional.cross_entropy(classes, TARGETS[:2, :4, 0]),
        "softmax": lambda: classes.softmax(1),
        "option": lambda: functional.mse_loss(places, places, weight=drawn(2, 4, 4)),
        "probabilities": lambda: functional.cross_entropy(places, drawn(2, 4, 4)),
        "reduction": lambda: functional.mse_loss(places, places, reduction="median"),
        "targets": lambda: functional.cross_entropy(places, TARGETS[:, :4, 0]),
    }[how]()


@pytest.mark.parametrize("how, sentence", [
    ("classes", "rank 0: the axis of classes of 2 x 4 x 4 cut 1 x 2 x 1 is cut"),
    ("softmax", "rank 0: axis 1 of 2 x 4 x 4 cut 1 x 2 x 1 is cut, and a softmax goes along all"),
    ("option", "rank 0: a loss of distributed arrays has no weight"),
    ("probabilities", "a loss of distributed arrays has numbers of classes, no probabilities"),
    ("reduction", "rank 0: a loss is reduced by mean, sum or none, not 'median'"),
    ("targets", r"rank 0: something of the shape \(2, 4\) is wanted here, not \(3, 4\)"),
])  # fmt: skip
def test_what_a_loss_cannot_do(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(refused, 2, how, timeout=5)
