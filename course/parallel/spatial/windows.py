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

import functools
from typing import NamedTuple

from torch.autograd import Function

from course.parallel.array.boxes import Box
from course.parallel.array.layout import Layout


class Window(NamedTuple):
    """Windows along an axis: `kernel` places that are `dilation` apart, a window every `stride`,
    the first of them `before` places ahead of the axis, the last at most `after` behind it; with
    `whole` False another one may reach farther, if it begins on the axis or ahead of it."""

    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1
    whole: bool = True

    @property
    def reach(self) -> int:
        """From the first place of a window to its last."""
        return self.dilation * (self.kernel - 1)

    def count(self, length: int) -> int:
        """How many windows an axis of `length` has.  Raises ValueError for none."""
        room = length + self.before + self.after - self.reach - 1
        count = (room if self.whole else room + self.stride - 1) // self.stride + 1
        if count < 1:
            raise ValueError(f"a window that reaches over {self.reach + 1} places does not fit on "
                             f"an axis of {length + self.before + self.after}")  # fmt: skip
        return count - (not self.whole and (count - 1) * self.stride >= length + self.before)

    def needs(self, start: int, stop: int) -> tuple:
        """What the windows `start` to `stop` see: no restriction beside what serial torch has."""
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


class View:
    """A rank's look at an array, cut as `owned`, through `windows` [its last axes]: `box`, those
    that are its own, `mine`, the places that it owns, and which places it needs for any windows.

    With `clipped` nothing beyond the array's edges is seen.
    """

    def __init__(self, rank, owned, windows, layout, clipped):
        self.windows, front = windows, len(owned.shape) - len(windows)
        self.edges = Box.whole(owned.shape[front:]) if clipped else None
        self.mine, self.box = (
            Box(*(side[front:] for side in each.box(rank))) for each in (owned, layout)
        )
        self.head = [side[:front] for side in layout.box(rank)]

    def sees(self, box) -> Box:
        """The places that the windows `box` see."""
        if not box.size:
            return Box(self.mine.starts, self.mine.starts)
        needs = (window.needs(*each) for window, each in zip(self.windows, box.intervals))
        seen = Box.of(*needs)
        return seen if self.edges is None else seen.meet(self.edges)

    def region(self, box) -> Box:
        """What is to be fetched for the windows `box`, whole along the first axes."""
        return Box(*(head + side for head, side in zip(self.head, self.sees(box))))

    def interior(self) -> Box:
        """The windows that see nothing but this rank's own places."""
        both = zip(self.windows, self.mine.intervals, self.box.intervals)
        return Box.of(*(_clipped(window.inside(*own), wanted) for window, own, wanted in both))

    def boxes(self) -> list[Box]:
        """The windows that are computed together: the interior first, then the slabs around it."""
        inner = self.interior()
        if not inner.size or inner == self.box:
            return [self.box]
        return [inner, *slabs(inner, self.box)]

    def cut_out(self, local, box):
        """What the windows `box` see, out of this rank's own part."""
        return local[(..., *self.sees(box).within(self.mine))]


def windowed(x, windows, compute, *, cuts=None, fill="zero", clipped=False, prepare=None,
             early=True):  # fmt: skip
    """The local result, and the layout, of looking at an array through `windows` [its last axes].

    `compute(seen, box)` gives the answers [batch, maps, *windows in box] of the windows `box`, or
    a square of answers for each, of what they see: padded already, or `clipped` at the array's
    edges.  Windows are cut where `cuts` [an axis each] says, or else belong to the rank that owns
    their middle.  If `early`, interior windows are computed while borders travel, in the backward
    pass as well.  `prepare(boxes)`, if given, is told first for which boxes `compute` will be
    called.
    """
    front = x.ndim - len(windows)
    if front != 2:
        raise ValueError(f"rank {x.comm.rank}: {len(windows)} axes of windows are behind those of "
                         f"batch and channels: not so in the shape {tuple(x.shape)}")  # fmt: skip
    if x.layout.grid[1] > 1:
        raise ValueError(f"rank {x.comm.rank}: a window sees all channels: axis 1 of {x.layout} "
                         "is cut; redistribute() it along the others")  # fmt: skip
    cuts = cuts or tuple(w.cuts(each) for w, each in zip(windows, x.layout.cuts[front:]))
    layout = Layout((*x.layout.cuts[:front], *cuts))
    view = View(x.comm.rank, x.layout, windows, layout, clipped)
    regions, alone = _regions(x.layout, tuple(windows), layout, clipped)
    boxes = [view.box] if alone or not early else view.boxes()
    if prepare:
        prepare(boxes)
    if alone:
        return compute(view.cut_out(x.local, view.box), view.box), layout
    return _in_parts(x, view, boxes, list(regions), fill, compute), layout


def worth_hiding(x) -> bool:
    """Whether borders travel while a rank computes: over a cable, or beside a device.  What cores
    of one machine hand one another takes less than the many small operations of slabs."""
    return len(set(x.comm.nodes)) > 1 or x.device.type != "cpu"


@functools.lru_cache(256)
def _regions(owned, windows, layout, clipped) -> tuple:
    """What each rank must fetch, and whether all of it is what each owns already."""
    views = [View(rank, owned, windows, layout, clipped) for rank in range(owned.ranks)]
    regions = tuple(view.region(view.box) for view in views)
    return regions, all(_covers(own, region) for own, region in zip(owned.boxes(), regions))


def _in_parts(x, view, boxes, regions, fill, compute):
    """The first of `boxes` from this rank's own part, if it can be, the others from what comes."""
    first = boxes[0]
    inside = bool(first.size) and first == view.interior()
    wanted = boxes[1:] if inside else boxes
    # What this rank does not ask for, others may: it takes nothing, and is in the call.
    taken = map(view.region, wanted or [Box(first.starts, first.starts)])
    pending = x.begin_fetch(regions, fill, list(taken))
    answers = [compute(view.cut_out(x.local, first), first)] if inside else []
    seen = pending.wait()
    if not wanted:
        return _Tied.apply(*answers, *seen)
    answers += map(compute, seen, wanted)
    return _Framed.apply(view.box, boxes, *answers) if len(answers) > 1 else answers[0]


class _Tied(Function):
    """`answers`, which hang on what was `taken` too, though they need none of it: the way back of a
    fetch is a call of all ranks."""

    @staticmethod
    def forward(ctx, answers, taken):
        ctx.shape = taken.shape
        ctx.save_for_backward(taken.new_empty(0))  # where checkpoints compute again
        return answers.data  # the same memory, and no view: a relu may be in place

    @staticmethod
    def backward(ctx, slope):
        (like,) = ctx.saved_tensors
        return slope, like.new_zeros(ctx.shape)


class _Framed(Function):
    """The answers of `boxes`, which make up the box `whole`, in one piece: each is copied once."""

    @staticmethod
    def forward(ctx, whole, boxes, *answers):
        first, axes = answers[0], len(whole.shape)
        block = first.shape[-1] // boxes[0].shape[-1]  # answers of a window along an axis
        ctx.places = [(..., *(slice(block * s.start, block * s.stop) for s in box.within(whole)))
                      for box in boxes]  # fmt: skip
        framed = first.new_empty((*first.shape[:-axes], *(block * n for n in whole.shape)))
        for place, answer in zip(ctx.places, answers):
            framed[place] = answer
        return framed

    @staticmethod
    def backward(ctx, slope):
        return None, None, *(slope[place] for place in ctx.places)


def slabs(inner, box) -> list:
    """What is around `inner`, before and behind it along each axis, up to `box`."""
    found = []
    for axis in reversed(range(len(box.starts))):
        (start, stop), (low, high) = box.intervals[axis], inner.intervals[axis]
        found += [_with(inner, axis, start, low), _with(inner, axis, high, stop)]
        inner = _with(inner, axis, start, stop)
    return [slab for slab in found if slab.size]


def _with(box, axis, start, stop) -> Box:
    intervals = box.intervals
    intervals[axis] = (start, max(start, stop))
    return Box.of(*intervals)


def nothing(shape, seen, field, function):
    """Answers of no window [shape], by `function` of a batch of no images of the size `field`.

    Of them, too, the type is what `function` makes of it, and the way back goes through it: a rank
    without an output takes part in the backward pass, and in what checkpoints compute again."""
    return function(seen.reshape(-1)[:0].view(0, seen.shape[1], *field)).reshape(shape)


def each_axis(value, axes) -> tuple:
    """One number for every axis, as torch's options have it."""
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _covers(own, region) -> bool:
    return not region.size or region.meet(own) == region


def _clipped(inside, wanted) -> tuple:
    low = min(max(inside[0], wanted[0]), wanted[1])
    return low, max(low, min(inside[1], wanted[1]))
