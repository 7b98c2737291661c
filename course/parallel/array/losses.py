"""Softmax and losses of arrays: what all ranks get alike, equal to the whole array's."""

import torch
from torch.nn import functional

from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.layout import Layout
from course.parallel.array.pointwise import part_like
from course.parallel.array.shapes import total


@implements(functional.softmax, torch.softmax, torch.Tensor.softmax)
def softmax(x, dim, *_, **options):
    """`softmax` along an axis that is not cut.  Raises ValueError for one that is."""
    return _along_uncut(functional.softmax, x, dim, options)


@implements(functional.log_softmax, torch.log_softmax, torch.Tensor.log_softmax)
def log_softmax(x, dim, *_, **options):
    """`log_softmax` along an axis that is not cut.  Raises ValueError for one that is."""
    return _along_uncut(functional.log_softmax, x, dim, options)


def _along_uncut(function, x, dim, options):
    if x.layout.grid[dim] > 1:
        raise ValueError(f"rank {x.comm.rank}: axis {dim} of {x.layout} is cut, and a softmax goes "
                         "along all of it: redistribute() it, or gather()")  # fmt: skip
    return DistributedArray(x.comm, function(x.local, dim, **options), x.layout)


@implements(functional.mse_loss)
def mse_loss(x, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The squared difference, its mean over all ranks' places, or its sum."""
    _check_unused(x, size_average=size_average, reduce=reduce, weight=weight)
    return _reduced((x - target).square(), reduction)


@implements(functional.cross_entropy)
def cross_entropy(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
                  reduction="mean", label_smoothing=0.0):  # fmt: skip
    """`cross_entropy` of classes [batch, classes, ...] cut along any axes but that of classes.

    target [batch, ...] is an array or, on all ranks alike, a tensor; it has the classes' numbers.
    Cost: one all-reduce of a number, of two with reduction="mean".
    """
    _check_unused(x, size_average=size_average, reduce=reduce)
    if x.layout.grid[1] > 1:
        raise ValueError(f"rank {x.comm.rank}: the axis of classes of {x.layout} is cut: "
                         "redistribute() it, or gather()")  # fmt: skip
    if target.dtype.is_floating_point:
        raise NotImplementedError(f"rank {x.comm.rank}: a loss of distributed arrays has numbers "
                                  "of classes, no probabilities: gather() first")  # fmt: skip
    layout = Layout((x.layout.cuts[0], *x.layout.cuts[2:]))
    classes = part_like(target, layout, x.comm)
    local = functional.cross_entropy(x.local, classes, weight, ignore_index=ignore_index,
                                     reduction="none", label_smoothing=label_smoothing)  # fmt: skip
    losses = DistributedArray(x.comm, local, layout)
    if reduction != "mean":
        return _reduced(losses, reduction)
    counted = classes != ignore_index
    weights = counted.to(local) if weight is None else weight[classes * counted] * counted
    return total(losses) / total(DistributedArray(x.comm, weights, layout))


def _check_unused(x, **options):
    """Raises NotImplementedError for an option of torch's that arrays do not have."""
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(f"rank {x.comm.rank}: a loss of distributed arrays has no "
                                      f"{name}: gather() first")  # fmt: skip


def _reduced(losses, reduction):
    ways = {"mean": losses.mean, "sum": losses.sum, "none": losses.clone}
    if reduction not in ways:
        raise ValueError(f"rank {losses.comm.rank}: a loss is reduced by mean, sum or none, "
                         f"not {reduction!r}")  # fmt: skip
    return ways[reduction]()
