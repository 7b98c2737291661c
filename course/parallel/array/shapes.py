"""Sums and means over axes, and other shapes for the same numbers."""

import math

import torch

from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.layout import Layout
from course.parallel.array.pointwise import part_like
from course.parallel.array.replicated import summed


@implements(torch.sum, torch.Tensor.sum)
def total(x, dim=None, keepdim=False, *, dtype=None):
    """The sum over axes `dim`, all of them by default.

    Along uncut axes nothing is sent, and the result is an array; where all cut axes are among
    them it is a plain tensor, equal on all ranks: an all-reduce of it.
    """
    axes = _axes(x, dim)
    local = x.local.sum(axes, keepdim, dtype=dtype)
    cut = {axis for axis, parts in enumerate(x.layout.grid) if parts > 1}
    if cut.issubset(axes):
        return summed(x.comm, local)
    if cut.intersection(axes):
        raise ValueError(f"rank {x.comm.rank}: of {x.layout}, a sum over the axes {axes} would "
                         "leave parts of it: sum over all cut axes, or over none")  # fmt: skip
    left = [
        (0, 1) if axis in axes else cuts
        for axis, cuts in enumerate(x.layout.cuts)
        if keepdim or axis not in axes
    ]
    return DistributedArray(x.comm, local, Layout(tuple(left)))


@implements(torch.mean, torch.Tensor.mean)
def mean(x, dim=None, keepdim=False, *, dtype=None):
    """The mean over axes `dim`, all of them by default, summed in float32 at least; see `total`.

    Raises ValueError for whole numbers without a floating `dtype`.
    """
    dtype = dtype or x.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"rank {x.comm.rank}: a mean is a floating number, not {dtype}")
    count = math.prod(x.shape[axis] for axis in _axes(x, dim))
    wide = torch.promote_types(dtype, torch.float32)
    return (total(x, dim, keepdim, dtype=wide) / count).to(dtype)


@implements(torch.permute, torch.Tensor.permute)
def permute(x, *order, dims=None):
    """Axes in another order; the cut ones keep theirs, or ranks would change places."""
    dims = dims or (order[0] if isinstance(order[0], tuple | list) else order)
    dims = _axes(x, dims)
    cut = [axis for axis in dims if x.layout.grid[axis] > 1]
    if cut != sorted(cut):
        raise ValueError(f"rank {x.comm.rank}: the cut axes {sorted(cut)} of {x.layout} stay in "
                         f"their order: not {cut}")  # fmt: skip
    layout = Layout(tuple(x.layout.cuts[axis] for axis in dims))
    return DistributedArray(x.comm, x.local.permute(dims), layout)


@implements(torch.transpose, torch.Tensor.transpose)
def transpose(x, dim0, dim1):
    """Two axes change places; see `permute`."""
    first, second = _axes(x, (dim0, dim1))
    dims = list(range(x.ndim))
    dims[first], dims[second] = second, first
    return permute(x, dims)


@implements(torch.flatten, torch.Tensor.flatten)
def flatten(x, start_dim=0, end_dim=-1):
    """Some axes as one, of which only the first may be cut."""
    start, end = _axes(x, (start_dim, end_dim))
    if any(parts > 1 for parts in x.layout.grid[start + 1 : end + 1]):
        axes = f"of the axes {start} to {end} of {x.layout} only the first may be cut"
        raise ValueError(f"rank {x.comm.rank}: {axes}: redistribute() it, or gather()")
    behind = math.prod(x.shape[start + 1 : end + 1])
    cuts = tuple(cut * behind for cut in x.layout.cuts[start])
    layout = Layout((*x.layout.cuts[:start], cuts, *x.layout.cuts[end + 1 :]))
    return DistributedArray(x.comm, x.local.flatten(start, end), layout)


@implements(torch.unflatten, torch.Tensor.unflatten)
def unflatten(x, dim, sizes):
    """One axis as several, of which the first is cut where it was.

    Raises ValueError for a cut that would go through the others.
    """
    (dim,) = _axes(x, dim)
    sizes = torch.empty(x.shape[dim], device="meta").unflatten(0, sizes).shape  # what -1 stands for
    behind = math.prod(sizes[1:])
    if any(cut % behind for cut in x.layout.cuts[dim]):
        raise ValueError(f"rank {x.comm.rank}: axis {dim} of {x.layout} is not cut at multiples of "
                         f"{behind}, so it cannot be {tuple(sizes)}")  # fmt: skip
    cuts = tuple(cut // behind for cut in x.layout.cuts[dim])
    local = x.local.unflatten(dim, (x.local.shape[dim] // behind, *sizes[1:]))
    rest = tuple((0, size) for size in sizes[1:])
    layout = Layout((*x.layout.cuts[:dim], cuts, *rest, *x.layout.cuts[dim + 1 :]))
    return DistributedArray(x.comm, local, layout)


@implements(torch.cat)
def cat(tensors, dim=0):
    """Arrays one behind the other along an axis that is not cut; they are cut as the first is.

    Raises ValueError where they differ along another axis.
    """
    first = next(x for x in tensors if isinstance(x, DistributedArray))
    (axis,) = _axes(first, dim)
    if first.layout.grid[axis] > 1:
        raise ValueError(f"rank {first.comm.rank}: along axis {axis}, which is cut, of "
                         f"{first.layout} nothing can be joined: redistribute() it")  # fmt: skip
    lengths = [x.shape[axis] for x in tensors]
    layouts = [first.layout.with_axis(axis, (0, length)) for length in lengths]
    local = [part_like(x, each, first.comm) for x, each in zip(tensors, layouts)]
    return DistributedArray(first.comm, torch.cat(local, axis),
                            first.layout.with_axis(axis, (0, sum(lengths))))  # fmt: skip


def _axes(x, dim) -> tuple:
    """Axes from 0 on, of one, of several, or of all: None, ().  Raises IndexError for others."""
    dims = (dim,) if isinstance(dim, int) else dim or range(x.ndim)
    for axis in dims:
        if not -x.ndim <= axis < x.ndim:
            raise IndexError(f"rank {x.comm.rank}: {x.layout} has no axis {axis}")
    return tuple(axis % x.ndim for axis in dims)
