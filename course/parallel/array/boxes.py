"""Boxes of a global index space: the box that a rank owns, and the box that it asks for."""

import math
from typing import NamedTuple


class Box(NamedTuple):
    """All indices i with starts[a] <= i[a] < stops[a] along every axis a; it may reach beyond any
    array's edges, and it may be empty."""

    starts: tuple
    stops: tuple

    @classmethod
    def of(cls, *intervals):
        """The box of one (start, stop) an axis."""
        return cls(*zip(*intervals)) if intervals else cls((), ())

    @classmethod
    def whole(cls, shape):
        """The box of an array's own indices."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def intervals(self) -> list:
        """(start, stop) of every axis."""
        return list(zip(self.starts, self.stops))

    @property
    def shape(self) -> tuple:
        """How many indices there are along every axis."""
        return tuple(max(stop - start, 0) for start, stop in self.intervals)

    @property
    def size(self) -> int:
        """How many indices there are."""
        return math.prod(self.shape)

    def meet(self, other):
        """What two boxes share."""
        starts = tuple(map(max, self.starts, other.starts))
        return Box(starts, tuple(map(max, starts, map(min, self.stops, other.stops))))

    def within(self, outer) -> tuple:
        """The slices of a tensor that holds the box `outer` which hold this box."""
        return tuple(
            slice(start - first, max(start, stop) - first)
            for (start, stop), first in zip(self.intervals, outer.starts)
        )

    def __str__(self):
        return "[" + ", ".join(f"{start}:{stop}" for start, stop in self.intervals) + "]"


class Run(NamedTuple):
    """Indices first, first + step, ... of an axis, `count` of them, that are shown at `at` and
    behind it: step -1 shows them in a mirror, step 0 shows one again and again."""

    at: int
    first: int
    step: int
    count: int


def runs(start: int, stop: int, length: int, fill: str) -> list[Run]:
    """What is shown from `start` to `stop` of an axis of `length`; what no run shows is 0.

    Beyond the edges `fill` is "zero", "circular", "reflect" (the edge itself is not repeated) or
    "replicate" (the edge again and again), as torch pads.
    """
    found = []
    for at in range(start, stop):
        index = FILLS[fill](at, length)
        if index is None:
            continue
        last = found[-1] if found else None
        if last and last.at + last.count == at and _goes_on(last, index):
            found[-1] = last._replace(step=index - last.first if last.count == 1 else last.step,
                                      count=last.count + 1)  # fmt: skip
        else:
            found.append(Run(at, index, 1, 1))
    return found


def _goes_on(run, index) -> bool:
    if run.count == 1:
        return abs(index - run.first) <= 1
    return index == run.first + run.step * run.count


def _zero(at, length):
    return at if 0 <= at < length else None


def _circular(at, length):
    return at % length


def _reflect(at, length):
    if length == 1:
        return 0
    at %= 2 * (length - 1)
    return min(at, 2 * (length - 1) - at)


def _replicate(at, length):
    return min(max(at, 0), length - 1)


FILLS = {"zero": _zero, "circular": _circular, "reflect": _reflect, "replicate": _replicate}
