"""Norms of arrays, by the statistics of the whole array: as on one process, or of each part."""

import math

import torch
from torch.nn import functional

from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.replicated import copied


@implements(functional.batch_norm)
def batch_norm(x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1,
               eps=1e-5):  # fmt: skip
    """`batch_norm` by mean and variance over the batch and all places of all ranks.

    Cost in training: two all-reduces of a number a channel, and on the way back as many, and one
    for the bias.
    Raises ValueError for one value a channel in training, and for weights, biases or running
    statistics of another number of channels, as torch does.
    """
    _require_own(x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    axes, shape = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if not training:
        middle, spread = running_mean.view(shape), running_var.view(shape)
    else:
        count, middle = _count_of_each(x), wide.mean(axes, keepdim=True)
    centred = wide - middle
    if training:
        spread = centred.square().mean(axes, keepdim=True)
        if running_mean is not None:
            _follow(running_mean, middle, momentum)
            _follow(running_var, spread * (count / (count - 1)), momentum)
    return _scaled(centred, (spread + eps).rsqrt(), weight, bias, shape).to(x.dtype)


def _require_own(x, **vectors):
    """Raises ValueError where a vector that is given has not a number for each channel of x."""
    for name, vector in vectors.items():
        if vector is not None and vector.numel() != x.shape[1]:
            raise ValueError(f"rank {x.comm.rank}: each of {x.shape[1]} channels has its own "
                             f"{name}: there cannot be {vector.numel()}")  # fmt: skip


def _count_of_each(x):
    """How many values a channel has."""
    count = math.prod(x.shape) // max(x.shape[1], 1)
    if count < 2:
        raise ValueError(f"rank {x.comm.rank}: a norm in training has more than one value a "
                         f"channel: not so in the shape {tuple(x.shape)}")  # fmt: skip
    return count


def _scaled(centred, scale, weight, bias, shape):
    """centred * scale * weight + bias, with one product as large as the images."""
    y = centred * (scale if weight is None else scale * weight.view(shape))
    return y if bias is None else y + bias.view(shape)


def _follow(running, now, momentum):
    """A running mean takes a step towards what is found now."""
    running.mul_(1 - momentum).add_(now.detach().view(-1), alpha=momentum)


def local_batch_norm(x, running_mean, running_var, weight=None, bias=None, training=False,
                     momentum=0.1, eps=1e-5):  # fmt: skip
    """`batch_norm` by the mean and variance of each rank's part: nothing is sent there, and the
    result depends on the cut."""
    mine = [None if each is None else copied(x.comm, each) for each in (weight, bias)]
    local = functional.batch_norm(
        x.local, running_mean, running_var, *mine, training, momentum, eps
    )
    return DistributedArray(x.comm, local, x.layout)


@implements(functional.group_norm)
def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """`group_norm` by mean and variance over all places of all ranks, for each sample and group;
    the batch is not cut.  Cost: as `batch_norm`.
    Raises ValueError for a weight or bias of another number of channels."""
    _require_own(x, weight=weight, bias=bias)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    grouped = wide.unflatten(1, (num_groups, -1))
    axes, shape = tuple(range(2, grouped.ndim)), (1, num_groups, -1, *[1] * (x.ndim - 2))
    centred = grouped - grouped.mean(axes, keepdim=True)
    scale = (centred.square().mean(axes, keepdim=True) + eps).rsqrt()
    return _scaled(centred, scale, weight, bias, shape).flatten(1, 2).to(x.dtype)


@implements(functional.linear)
def linear(x, weight, bias=None):
    """A linear layer along the last axis, which is not cut, at each place of an array."""
    y = x @ weight.mT
    return y if bias is None else y + bias.to(y.dtype)
