"""What every rank has alike, on its way into a distributed array and out of it.

`copied` and `summed` are each other's adjoint (Megatron's f and g): one does nothing on the way
there and adds up over ranks on the way back, the other the other way round.
"""

import torch
from torch.autograd import Function

from course.collectives import all_reduce


class Copied(Function):
    """x of all ranks alike, used by each for its part: the slopes of all parts are added up."""

    @staticmethod
    def forward(ctx, x, comm, algorithm):
        ctx.how = comm, algorithm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, slope):
        return Summed.apply(slope, *ctx.how), None, None


class Summed(Function):
    """The sum over ranks of what each has made of its part: the same slope for all of them."""

    @staticmethod
    def forward(ctx, x, comm, algorithm):
        ctx.how = comm, algorithm
        whole = x.clone(memory_format=torch.contiguous_format)
        all_reduce(comm, whole, algorithm=algorithm)
        return whole

    @staticmethod
    def backward(ctx, slope):
        return Copied.apply(slope, *ctx.how), None, None


def copied(comm, x, algorithm="recursive_doubling"):
    """`x` [any shape], equal on all ranks, for use on this rank's part of an array.

    Cost: nothing; on the way back an all-reduce of it.
    """
    return Copied.apply(x, comm, algorithm) if x.requires_grad else x


def summed(comm, x, algorithm="recursive_doubling"):
    """The sum of `x` [any shape] over ranks, on all of them.  Cost: an all-reduce of it."""
    return Summed.apply(x, comm, algorithm)
