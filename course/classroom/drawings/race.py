"""Who is the fastest? The predicted times of all-reduces as lines named at their ends, and what was
found as dots."""

import numpy as np

from course.classroom.figures import COLOURS, curves, panels

LOOKS = {  # colour, dashes, marker: told apart without colour, too
    "flat": (COLOURS[6], ":", "v"),
    "tree": (COLOURS[2], "-.", "^"),
    "recursive_doubling": (COLOURS[0], "-", "o"),
    "ring": (COLOURS[1], "--", "s"),
    "halving_doubling": (COLOURS[3], (0, (6, 1.5, 1.5, 1.5)), "D"),
}
GREY = "0.55"
GAP = 0.065  # between two names, as a share of the height
ROOM = 1.02, 1.06  # where a name's line bends, where the name begins, as shares of the width


def at(sizes, found):
    """Dots for `draw`, of `found` {how: {algorithm: the seconds of each of sizes}}."""
    return {how: {name: (sizes, took) for name, took in times.items()}
            for how, times in found.items()}  # fmt: skip


def draw(lines, title, x, y, *, dots=None, marks=None, answer=True, axes=None):
    """A line for each of `lines` {algorithm: (xs, ys)} on logarithmic axes, named at its end, and
    `dots` {how they were found: {algorithm: (xs, ys)}}, the first kind full, the second hollow;
    `marks` {label: x} as upright lines.  Returns the axes.

    Without the `answer`, all lines are grey and have no names.
    """
    axes = axes or panels(1, width=6.4, height=4.2)[0]
    ends = {}
    for name, (xs, ys) in lines.items():
        colour, dashes, _ = LOOKS[name] if answer else (GREY, "-", "")
        axes.plot(xs, ys, linestyle=dashes, color=colour, linewidth=1.6)
        ends[name] = xs[-1], ys[-1], colour
    for (how, found), full in zip((dots or {}).items(), (True, False), strict=False):
        _scatter(axes, how, found, full)
    curves({}, title, x, y, marks=marks, log="xy", axes=axes)
    least = min(min(xs) for xs, _ in lines.values()) / (1.5 if dots else 1)  # no dot on the axis
    axes.set_xlim(least, max(end[0] for end in ends.values()))
    axes.margins(x=0)
    if answer:
        name_ends(axes, ends)
    return axes


def _scatter(axes, how, found, full):
    """The dots of one kind, and how they were found in the key."""
    for name, (xs, ys) in found.items():
        colour, _, marker = LOOKS[name]
        face = {} if full else {"markerfacecolor": "none"}
        axes.plot(xs, ys, marker, color=colour, ms=6, clip_on=False, zorder=3, **face)
    axes.plot([], [], "o", color="0.4", label=how, **({} if full else {"markerfacecolor": "none"}))


def name_ends(axes, ends):
    """The names of lines beside their right ends {name: (x, y, colour)}, none over another."""
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = {name: to_axes.transform(end[:2])[1] for name, end in ends.items()}
    names = sorted(heights, key=heights.get)
    for name, place in zip(names, spaced([heights[name] for name in names], GAP), strict=True):
        bend, start = ROOM
        axes.plot([1, bend, start - 0.005], [heights[name], place, place], color=ends[name][2],
                  linewidth=0.6, transform=axes.transAxes, clip_on=False)  # fmt: skip
        axes.text(start, place, name, color=ends[name][2], va="center", fontsize=9,
                  transform=axes.transAxes)  # fmt: skip


def spaced(places, gap) -> list:
    """Ascending places, moved as little as it takes to be `gap` from one another."""
    groups = []  # of places that touch: their middle, how many
    for place in places:
        groups.append((place, 1))
        while len(groups) > 1:
            (low, few), (high, many) = groups[-2:]
            if high - low >= gap * (few + many) / 2:
                break
            groups[-2:] = [((low * few + high * many) / (few + many), few + many)]
    offsets = ((middle, np.arange(count) - (count - 1) / 2) for middle, count in groups)
    return [float(middle + gap * offset) for middle, each in offsets for offset in each]
