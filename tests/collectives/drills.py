"""Every collective once, on given material: pairs of what came out and what must have.

A drill runs on every rank.  `shapes` are those of the parts (one a rank, taken in turn; the first
is that of a tensor that all ranks have); inputs are among the pairs, since they must stay.
"""

from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from course.collectives.all_reduce import ALGORITHMS
from tests.collectives.guarded import Guarded, whole
from tests.collectives.serial import reduced, same, values


class Material:
    """Tensors of one dtype and layout, whose values change with the turn; `made` turns them into
    what the collectives get."""

    def __init__(self, dtype, layout=whole, turn=0, made=lambda x: x):
        self.dtype, self.layout, self.turn, self.made = dtype, layout, turn, made
        self._guarded, self._used, self.handed = [], 0, []

    def values(self, rank, shape, part=0):
        return values(shape, self.dtype, rank, part, self.turn)

    def put(self, rank, shape, part=0):
        """A tensor that holds what `rank` puts in as `part`."""
        guarded = self._next(shape)
        guarded.view.detach().copy_(self.values(rank, shape, part))
        return self._hand(guarded)

    def room(self, shape):
        """A tensor to receive into."""
        return self._hand(self._next(shape))

    def again(self, turn):
        """Hand out the same tensors once more, in the same order, with other values."""
        self._used, self.turn = 0, turn

    @property
    def intact(self) -> bool:
        return all(guarded.intact for guarded in self._guarded)

    def _next(self, shape):
        if self._used == len(self._guarded):
            self._guarded.append(Guarded(shape, self.dtype, self.layout))
        self._used += 1
        return self._guarded[self._used - 1]

    def _hand(self, guarded):
        x = self.made(guarded.view)
        self.handed.append((x, x.requires_grad, x.grad_fn))
        return x


def drill_broadcast(comm, material, shapes, root, op):
    x = material.put(comm.rank, shapes[0])
    broadcast(comm, x, root)
    return [(x, material.values(root, shapes[0]))]


def drill_reduce(comm, material, shapes, root, op):
    x = material.put(comm.rank, shapes[0])
    reduce(comm, x, op, root)
    mine = material.values(comm.rank, shapes[0])
    return [(x, all_reduced(comm, material, shapes[0], op) if comm.rank == root else mine)]


def drill_scatter(comm, material, shapes, root, op):
    given = [material.values(root, part_shape(shapes, r), r) for r in range(comm.size)]
    out = material.room(part_shape(shapes, comm.rank))
    if comm.rank != root:
        scatter(comm, out, root=root)
        return [(out, given[comm.rank])]
    parts = [material.put(root, part_shape(shapes, r), r) for r in range(comm.size)]
    scatter(comm, out, parts, root)
    return [(out, given[root]), *zip(parts, given, strict=True)]


def drill_gather(comm, material, shapes, root, op):
    given = [material.values(r, part_shape(shapes, r)) for r in range(comm.size)]
    x = material.put(comm.rank, part_shape(shapes, comm.rank))
    outs = [material.room(part_shape(shapes, r)) for r in range(comm.size)]
    gather(comm, x, outs if comm.rank == root else None, root)
    return [(x, given[comm.rank]), *(zip(outs, given, strict=True) if comm.rank == root else ())]


def drill_all_gather(comm, material, shapes, root, op):
    given = [material.values(r, part_shape(shapes, r)) for r in range(comm.size)]
    x = material.put(comm.rank, part_shape(shapes, comm.rank))
    outs = [material.room(part_shape(shapes, r)) for r in range(comm.size)]
    all_gather(comm, outs, x)
    return [(x, given[comm.rank]), *zip(outs, given, strict=True)]


def drill_reduce_scatter(comm, material, shapes, root, op):
    parts = [material.put(comm.rank, part_shape(shapes, r), r) for r in range(comm.size)]
    out = material.room(part_shape(shapes, comm.rank))
    reduce_scatter(comm, out, parts, op)
    given = [material.values(comm.rank, part_shape(shapes, r), r) for r in range(comm.size)]
    expected = all_reduced(comm, material, part_shape(shapes, comm.rank), op, comm.rank)
    return [(out, expected), *zip(parts, given, strict=True)]


def drill_all_to_all(comm, material, shapes, root, op):
    def shape(src, dst):
        return part_shape(shapes, src + 2 * dst)

    me, everyone = comm.rank, range(comm.size)
    parts = [material.put(me, shape(me, dst), dst) for dst in everyone]
    outs = [material.room(shape(src, me)) for src in everyone]
    all_to_all(comm, outs, parts)
    given = [material.values(me, shape(me, dst), dst) for dst in everyone]
    expected = [material.values(src, shape(src, me), me) for src in everyone]
    return [*zip(outs, expected, strict=True), *zip(parts, given, strict=True)]


def _drill_by(algorithm):
    def drill(comm, material, shapes, root, op):
        x = material.put(comm.rank, shapes[0])
        all_reduce(comm, x, op, algorithm=algorithm, segment_bytes=max(16, x.nbytes // 11))
        return [(x, all_reduced(comm, material, shapes[0], op))]

    drill.__name__ = f"drill_{algorithm}"
    return drill


ALL_REDUCING = tuple(_drill_by(algorithm) for algorithm in ALGORITHMS)
BASIC = (drill_broadcast, drill_scatter, drill_gather, drill_all_gather, drill_all_to_all)
REDUCING = (drill_reduce, drill_reduce_scatter, *ALL_REDUCING)
DRILLS = BASIC + REDUCING


def part_shape(shapes, part):
    return shapes[part % len(shapes)]


def all_reduced(comm, material, shape, op, part=0):
    return reduced([material.values(r, shape, part) for r in range(comm.size)], op)


def wrongs(comm, drill, material, shapes, root=0, op="sum") -> list[str]:
    """A sentence for each pair that differs, and one if anything beside the tensors has changed."""
    case = f"{drill.__name__} {material.dtype} {material.layout.__name__} {shapes} {op} root {root}"
    pairs = drill(comm, material, shapes, root % comm.size, op)
    found = [f"{case}: {got} is not {expected}" for got, expected in pairs
             if not same(got, expected, op)]  # fmt: skip
    return found if material.intact else [*found, f"{case}: something beside it has changed"]
