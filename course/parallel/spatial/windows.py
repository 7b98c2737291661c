"""Whatever looks at an image through windows: which part each rank needs, and what it can compute
while that is under way.

    this rank's outputs        interior: windows that lie in its own part alone
    +--------------------+     border: the rest, in slabs, when the fetch is over
    |  b b b b b b b b   |
    |  b i i i i i i b   |
    |  b i i i i i i b   |
    |  b b b b b b b b   |
    +--------------------+
"""

from typing import NamedTuple

import torch
from torch.autograd import Function

from course.parallel.array.boxes import Box
from course.parallel.array.layout import Layout


class Window(NamedTuple):
    """Windows along an axis: `kernel` places that are `dilation` apart, a window every `stride`,
    the first of them `before` places ahead of the axis, the last at most `after` behind it."""

    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """From the first place of a window to its last."""
        return self.dilation * (self.kernel - 1)

    def count(self, length: int) -> int:
        """How many windows an axis of `length` has.  Raises ValueError for none."""
        room = length + self.before + self.after - self.reach - 1
        if room < 0:
            raise ValueError(f"a window that reaches over {self.reach + 1} places does not fit on "
                             f"an axis of {length + self.before + self.after}")  # fmt: skip
        return room // self.stride + 1

    def needs(self, start: int, stop: int) -> tuple:
        """What the windows `start` to `stop` see: no restriction beside what serial torch has."""
        if stop <= start:
            return 0, 0
        first = start * self.stride - self.before
        return first, (stop - 1) * self.stride - self.before + self.reach + 1

    def cuts(self, cuts) -> tuple:
        """Windows belong to the rank that owns their middle."""
        count = self.count(cuts[-1])
        middles = (-(-(2 * (cut + self.before) - self.reach) // (2 * self.stride)) for cut in cuts)
        return (0, *(min(max(each, 0), count) for each in list(middles)[1:-1]), count)

    def inside(self, low: int, high: int) -> tuple:
        """Which windows see nothing but the places `low` to `high`."""
        first = -(-(low + self.before) // self.stride)
        stop = (high - 1 - self.reach + self.before) // self.stride + 1
        return first, max(first, stop)


def windowed(x, windows, compute, *, cuts=None, fill="zero"):
    """The local result, and the layout, of looking at an array through `windows` [its last axes].

    `compute(seen, box)` gives the answers [batch, maps, *windows in box] of the windows `box`, of
    what they see, padded already.  Windows are cut where `cuts` [an axis each] says, or else belong
    to the rank that owns their middle.  Interior windows are computed while borders travel, in the
    backward pass as well.
    """
    front = x.ndim - len(windows)
    if x.layout.grid[1] > 1:
        raise ValueError(f"rank {x.comm.rank}: a window sees all channels: axis 1 of {x.layout} "
                         "is cut; redistribute() it along the others")  # fmt: skip
    behind = x.layout.cuts[front:]
    cuts = cuts or tuple(window.cuts(each) for window, each in zip(windows, behind))
    layout = Layout((*x.layout.cuts[:front], *cuts))
    regions = [_seen(windows, box, front) for box in layout.boxes()]
    mine, box = Box(*(side[front:] for side in x.box)), layout.box(x.comm.rank)
    box = Box(*(side[front:] for side in box))
    if all(_covers(own, region) for own, region in zip(x.layout.boxes(), regions)):
        return compute(_part(x.local, windows, box, mine), box), layout
    pending = x.begin_fetch(regions, fill)
    inner = Box.of(*(_clipped(window.inside(*own), wanted) for window, own, wanted
                     in zip(windows, mine.intervals, box.intervals)))  # fmt: skip
    done = compute(_part(x.local, windows, inner, mine), inner) if inner.size else None
    region = pending.wait()
    seen = Box.of(*(window.needs(*each) for window, each in zip(windows, box.intervals)))

    def border(slab):
        return compute(_part(region, windows, slab, seen), slab)

    if done is None:
        return border(box), layout
    if inner == box:  # what this rank has not asked for, others may have
        return _Tied.apply(done, region), layout
    return _framed(done, inner, box, border, front), layout


class _Tied(Function):
    """`answers`, which hang on `region` too, though they need none of it: the way back of a fetch
    is a call of all ranks."""

    @staticmethod
    def forward(ctx, answers, region):
        ctx.save_for_backward(region)
        return answers.view_as(answers)

    @staticmethod
    def backward(ctx, slope):
        (region,) = ctx.saved_tensors
        return slope, torch.zeros_like(region)


def _framed(done, inner, box, border, front):
    """`done`, the answers of the windows `inner`, with those around it, up to `box`."""
    for axis in reversed(range(len(box.starts))):
        low, high = inner.intervals[axis]
        around = [(box.starts[axis], low), (high, box.stops[axis])]
        slabs = [_with(inner, axis, *each) for each in around]
        parts = [border(slab) if slab.size else None for slab in slabs]
        whole = [part for part in (parts[0], done, parts[1]) if part is not None]
        done = torch.cat(whole, front + axis) if len(whole) > 1 else done
        inner = _with(inner, axis, *box.intervals[axis])
    return done


def _with(box, axis, start, stop) -> Box:
    intervals = box.intervals
    intervals[axis] = (start, max(start, stop))
    return Box.of(*intervals)


def _part(held, windows, box, holds):
    """What the windows `box` see, out of `held` [..., *holds]."""
    seen = Box.of(*(window.needs(*each) for window, each in zip(windows, box.intervals)))
    if not box.size:
        seen = Box(holds.starts, holds.starts)
    return held[(..., *seen.within(holds))]


def _seen(windows, box, front) -> Box:
    """The region that the answers `box` need, whole along the first axes."""
    behind = box.intervals[front:]
    needs = [window.needs(*each) for window, each in zip(windows, behind)]
    if any(start >= stop for start, stop in behind):
        needs = [(0, 0)] * len(behind)
    return Box.of(*box.intervals[:front], *needs)


def _covers(own, region) -> bool:
    return not region.size or region.meet(own) == region


def _clipped(inside, wanted) -> tuple:
    low = min(max(inside[0], wanted[0]), wanted[1])
    return low, max(low, min(inside[1], wanted[1]))
