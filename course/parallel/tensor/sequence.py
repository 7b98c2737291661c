"""Between rows that are cut over ranks and rows that all have: the sequence-parallel pair.

`gathered` and `scattered` are each other's adjoint: what collects the rows of all ranks adds up
their slopes on the way back, and gives each rank its own; and the other way round.  In place of
`summed` and `copied`, they send as much, and what lies between them is computed once, not by all.
Source: Korthikanti et al. 2022 (arXiv:2205.05198).
"""

import torch
from torch.autograd import Function
from torch.func import functional_call

from course.collectives import all_gather, reduce_scatter
from course.parallel.array.replicated import copied
from course.parallel.tensor.cut import checked_cuts, lengths


class Gathered(Function):
    """The parts of all ranks as one, for a different use on every rank."""

    @staticmethod
    def forward(ctx, x, comm, cuts, axis):
        ctx.how = comm, cuts, axis
        shapes = [(*x.shape[:axis], length, *x.shape[axis:][1:]) for length in lengths(cuts)]
        parts = [x.new_empty(shape) for shape in shapes]
        all_gather(comm, parts, x)
        return torch.cat(parts, axis)

    @staticmethod
    def backward(ctx, slope):
        return Scattered.apply(slope, *ctx.how), None, None, None


class Scattered(Function):
    """Of the sum over ranks each rank's own part."""

    @staticmethod
    def forward(ctx, x, comm, cuts, axis):
        ctx.how = comm, cuts, axis
        parts = x.split(lengths(cuts), axis)
        mine = torch.empty_like(parts[comm.rank], memory_format=torch.contiguous_format)
        reduce_scatter(comm, mine, parts)
        return mine

    @staticmethod
    def backward(ctx, slope):
        return Gathered.apply(slope, *ctx.how), None, None, None


def gathered(comm, x, cuts, axis: int = -2) -> torch.Tensor:
    """All rows [..., cuts[-1], features] of those that each rank has [..., its own, features].

    Cost: an all-gather; on the way back a reduce-scatter.  Raises ValueError for rows that are not
    those of the cuts.
    """
    return Gathered.apply(x, comm, *checked_rows(comm, x, cuts, axis, part=True))


def scattered(comm, x, cuts, axis: int = -2) -> torch.Tensor:
    """This rank's rows of the sum over ranks of x [..., cuts[-1], features].

    Cost: a reduce-scatter; on the way back an all-gather.  Raises ValueError as `gathered` does.
    """
    return Scattered.apply(x, comm, *checked_rows(comm, x, cuts, axis, part=False))


def checked_rows(comm, x, cuts, axis, part) -> tuple:
    """The cuts, and the axis counted from the first, of rows of which x has this rank's `part`, or
    all.  Raises ValueError for others."""
    cuts = checked_cuts(comm, cuts[-1], cuts)
    expected = lengths(cuts)[comm.rank] if part else cuts[-1]
    if not -x.dim() <= axis < x.dim() or x.shape[axis] != expected:
        raise ValueError(f"rank {comm.rank}: of rows cut at {cuts} it has {expected}, along axis "
                         f"{axis}: not {list(x.shape)}")  # fmt: skip
    return cuts, axis % x.dim()


def on_rows(comm, module, *inputs):
    """`module`, which treats each row by itself, applied to this rank's rows; all ranks have its
    parameters alike, and what their slopes lack comes from the rows of the others.

    Cost: nothing; on the way back an all-reduce of each parameter.
    """
    parameters = {name: copied(comm, p) for name, p in module.named_parameters()}
    return functional_call(module, parameters, inputs)
