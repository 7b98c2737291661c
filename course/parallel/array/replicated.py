"""What every rank has alike, on its way into a distributed array and out of it.

`copied` and `summed` are each other's adjoint (Megatron's f and g): one does nothing on the way
there and adds up over ranks on the way back, the other the other way round.
"""

from torch.autograd import Function

from course.collectives import all_reduce


class Copied(Function):
    """x of all ranks alike, used by each for its part: the slopes of all parts are added up."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, slope):
        return Summed.apply(slope, ctx.comm), None


class Summed(Function):
    """The sum over ranks of what each has made of its part: the same slope for all of them."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        whole = x.contiguous().clone()
        all_reduce(comm, whole, algorithm="recursive_doubling")
        return whole

    @staticmethod
    def backward(ctx, slope):
        return Copied.apply(slope, ctx.comm), None


def copied(comm, x):
    """`x` [any shape], equal on all ranks, for use on this rank's part of an array.

    Cost: nothing; on the way back an all-reduce of it.
    """
    return Copied.apply(x, comm) if x.requires_grad else x


def summed(comm, x):
    """The sum of `x` [any shape] over ranks, on all of them.  Cost: an all-reduce of it."""
    return Summed.apply(x, comm)
