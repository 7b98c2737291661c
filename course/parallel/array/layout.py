"""How an array of a global shape is cut over a grid of ranks: a plan, and nothing but data."""

import functools
import itertools
import math
import operator
from typing import NamedTuple

from course.parallel.array.boxes import Box


class Layout(NamedTuple):
    """Axis a is cut at cuts[a] = (0, ..., its length), which makes len(cuts[a]) - 1 parts of it,
    empty ones among them where two cuts are equal.  Ranks count the parts with the last axis
    fastest."""

    cuts: tuple

    @property
    def shape(self) -> tuple:
        """The global shape."""
        return tuple(cuts[-1] for cuts in self.cuts)

    @property
    def grid(self) -> tuple:
        """How many parts there are along every axis."""
        return tuple(len(cuts) - 1 for cuts in self.cuts)

    @property
    def ranks(self) -> int:
        """How many parts there are in all: one for each rank."""
        return math.prod(self.grid)

    def place(self, rank: int) -> tuple:
        """Where in the grid a rank is."""
        place = []
        for parts in reversed(self.grid):
            rank, at = divmod(rank, parts)
            place.insert(0, at)
        return tuple(place)

    def rank(self, place) -> int:
        """Which rank is at a place of the grid."""
        return functools.reduce(lambda rank, both: rank * both[1] + both[0],
                                zip(place, self.grid), 0)  # fmt: skip

    def box(self, rank: int) -> Box:
        """What a rank owns."""
        return _boxes(self)[rank]

    def boxes(self) -> list[Box]:
        """What every rank owns."""
        return list(_boxes(self))

    def with_axis(self, axis: int, cuts) -> "Layout":
        """The same with other cuts of one axis, into as many parts."""
        return Layout((*self.cuts[:axis], tuple(cuts), *self.cuts[axis:][1:]))

    def __str__(self):
        shape, grid = (" x ".join(map(str, each)) for each in (self.shape, self.grid))
        return f"{shape} cut {grid}"


@functools.lru_cache(1024)
def _boxes(layout) -> list:
    """Of all ranks: the last axis is the fastest, as ranks count."""
    parts = (itertools.pairwise(cuts) for cuts in layout.cuts)
    return [Box.of(*intervals) for intervals in itertools.product(*parts)]


def evenly(shape, grid) -> Layout:
    """A layout whose parts differ by one index at most; the first ones are the larger.

    `grid` has a number of parts for each axis.  Raises ValueError for what cannot be a grid.
    """
    if len(grid) != len(shape):
        raise ValueError(f"a grid has a number of parts for every axis: {tuple(grid)} has "
                         f"{len(grid)}, the shape {tuple(shape)} has {len(shape)}")  # fmt: skip
    for parts in grid:
        if not _is_count(parts, 1):
            raise ValueError(f"an axis is cut into at least 1 part, not {parts!r}")
    return Layout(tuple(even_cuts(*each) for each in zip(shape, grid)))


def even_cuts(length: int, parts: int) -> tuple:
    """Where an axis is cut into parts that differ by one at most."""
    least, more = divmod(length, parts)
    return tuple(part * least + min(part, more) for part in range(parts + 1))


def cut_at(shape, cuts: dict) -> Layout:
    """A layout with cuts of one's own: {axis: where it is cut}; all other axes stay whole.

    Raises ValueError for cuts that do not go from 0 to the axis' length, or go back.
    """
    whole = {axis: (0, length) for axis, length in enumerate(shape)}
    for axis, at in cuts.items():
        if axis not in whole:
            raise ValueError(f"the shape {tuple(shape)} has no axis {axis!r} to be cut")
        at = tuple(map(operator.index, at))
        if (*at[:1], *at[-1:]) != whole[axis] or any(a > b for a, b in itertools.pairwise(at)):
            raise ValueError(f"the cuts of axis {axis} go up from 0 to {shape[axis]}: not {at}")
        whole[axis] = at
    return Layout(tuple(whole.values()))


def owned_by(root: int, shape, ranks: int) -> Layout:
    """One rank has it all; the parts of the others are empty."""
    if not shape:
        raise ValueError("a number of no axes cannot be cut")
    first = (0,) * (root + 1) + (shape[0],) * (ranks - root)
    return cut_at(shape, {0: first})


def _is_count(number, least) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least
