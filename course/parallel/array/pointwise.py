"""Functions of each number by itself, and products of matrices whose own axes are not cut."""

import torch
from torch.nn import functional

from course.parallel.array.boxes import Box
from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.layout import Layout
from course.parallel.array.replicated import copied

NAMES = """
add sub rsub mul div true_divide pow neg abs sign square sqrt rsqrt reciprocal exp expm1 log log1p
sin cos tanh sigmoid erf relu clamp clamp_min clamp_max maximum minimum where lerp gt ge lt le eq ne
isfinite isnan nan_to_num logical_and logical_or logical_not zeros_like ones_like empty_like clone
detach contiguous float double half bfloat16
"""
OF_NN = """
relu relu6 elu selu celu gelu silu mish tanh sigmoid leaky_relu softplus hardtanh hardswish
"""


def functions_named(names, *homes):
    """What the modules and classes `homes` have under any of the names."""
    return [getattr(home, name) for name in names for home in homes if hasattr(home, name)]


def pointwise(function):
    """`function` for arrays: each rank's part of them, and of the tensors beside them."""

    def of_arrays(*args, **kwargs):
        arrays = [x for x in (*args, *kwargs.values()) if isinstance(x, DistributedArray)]
        comm, others = arrays[0].comm, [x for x in (*args, *kwargs.values()) if _is_tensor(x)]
        layout = broadcast([x.layout for x in arrays], [x.shape for x in others])
        mine = [part_of(x, layout, comm) for x in args]
        also = {key: part_of(x, layout, comm) for key, x in kwargs.items()}
        return DistributedArray(comm, function(*mine, **also), layout)

    return of_arrays


for each in {
    *functions_named(NAMES.split(), torch, torch.Tensor),
    *functions_named(OF_NN.split(), functional, torch, torch.Tensor),
}:
    implements(each)(pointwise(each))


def broadcast(layouts, shapes=()) -> Layout:
    """How the result of arrays, and of tensors of `shapes` beside them, is cut: as the first array
    all of whose cut axes are as long as the result's.

    Raises ValueError for shapes that do not go together, and where there is no such array.
    """
    try:
        shape = torch.broadcast_shapes(*(layout.shape for layout in layouts), *shapes)
    except RuntimeError:
        told = " and ".join(str(tuple(s)) for s in (*(each.shape for each in layouts), *shapes))
        raise ValueError(f"arrays of shape {told} do not go together") from None
    for layout in layouts:
        cuts = ((0, 1),) * (len(shape) - len(layout.cuts)) + layout.cuts
        if all(len(own) == 2 or own[-1] == length for own, length in zip(cuts, shape)):
            return Layout(tuple(own if own[-1] == length else (0, length)
                                for own, length in zip(cuts, shape)))  # fmt: skip
    told = " and ".join(map(str, layouts))
    raise ValueError(f"{told} make {tuple(shape)}, and it has no such cut: redistribute() one")


def _is_tensor(x) -> bool:
    return isinstance(x, torch.Tensor)


def part_of(x, layout, comm):
    """What of an argument goes with this rank's part of a result that is cut by `layout`.

    An array that is cut otherwise is fetched; of a tensor that all ranks have, each takes a part.
    """
    if isinstance(x, DistributedArray) and x.layout == layout and x.comm is comm:
        return x.local
    return _seen_in(x, layout.boxes(), comm)


def part_like(x, layout, comm):
    """`part_of` what is not broadcast.  Raises ValueError unless it has the shape of `layout`."""
    if tuple(x.shape) != layout.shape:
        raise ValueError(f"rank {comm.rank}: something of the shape {layout.shape} is wanted here, "
                         f"not {tuple(x.shape)}")  # fmt: skip
    return part_of(x, layout, comm)


def _seen_in(x, boxes, comm):
    """What of an argument is broadcast to this rank's one of `boxes`, which all ranks have."""
    if isinstance(x, DistributedArray):
        if x.comm is not comm:
            raise ValueError(f"rank {comm.rank}: arrays of two communicators, {comm.name} and "
                             f"{x.comm.name}, do not go together")  # fmt: skip
        regions = [shown(box, x.shape) for box in boxes]
        return x.local if regions == x.layout.boxes() else x.fetch(regions)
    if not isinstance(x, torch.Tensor):
        return x
    return copied(comm, x)[shown(boxes[comm.rank], x.shape).within(Box.whole(x.shape))]


def shown(box, shape) -> Box:
    """Which indices of something of `shape` are broadcast to a box of the result."""
    behind = box.intervals[len(box.intervals) - len(shape) :]
    return Box.of(*((0, 1) if length == 1 else own for length, own in zip(shape, behind)))


@implements(torch.matmul, torch.Tensor.matmul, torch.bmm)
def matmul(a, other):
    """Products of matrices: axes before the last two may be cut, and the rows of `a`.

    Raises ValueError for other cuts: of them each rank would have a part of every product.
    """
    arrays = [x for x in (a, other) if isinstance(x, DistributedArray)]
    comm = arrays[0].comm
    for x in arrays:
        if any(len(cuts) > 2 for cuts in x.layout.cuts[-1 if x is a else -2 :]):
            which = "columns of matrices" if x is a else "matrices"
            raise ValueError(f"rank {comm.rank}: {which} of {x.layout} are cut: redistribute() "
                             "them along other axes, or gather()")  # fmt: skip
    if a.ndim < 2 or other.ndim < 2:
        raise ValueError(f"rank {comm.rank}: products are of matrices, not of shapes "
                         f"{tuple(a.shape)} and {tuple(other.shape)}")  # fmt: skip
    tensors = [x for x in (a, other) if _is_tensor(x)]
    batch = broadcast([Layout(x.layout.cuts[:-2]) for x in arrays], [x.shape[:-2] for x in tensors])
    rows = a.layout.cuts[-2] if isinstance(a, DistributedArray) else _uncut(a.shape[-2:-1])[0]
    whole = Layout((*batch.cuts, rows, *_uncut(a.shape[-1:])))
    matrices = [Box.of(*box.intervals[:-2], *_uncut(other.shape[-2:])) for box in whole.boxes()]
    local = part_of(a, whole, comm) @ _seen_in(other, matrices, comm)
    return DistributedArray(comm, local, Layout((*batch.cuts, rows, *_uncut(local.shape[-1:]))))


def _uncut(shape) -> tuple:
    return tuple((0, length) for length in shape)


@implements(torch.Tensor.to)
def to(x, *args, **kwargs):
    """Another dtype or device; those of an array, for a tensor."""
    if not isinstance(x, DistributedArray):
        return x.to(*(y.local if isinstance(y, DistributedArray) else y for y in args), **kwargs)
    return DistributedArray(x.comm, x.local.to(*args, **kwargs), x.layout)
