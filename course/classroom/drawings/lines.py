"""Draw lines that are told apart without colour: each has its own dashes, and its name at its end.

`figures.curves` has a legend instead, which is shorter to read where there are many lines.
"""

import numpy as np
from matplotlib.ticker import MaxNLocator

from course.classroom.figures import COLOURS, named, panels

DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
MARKERS = "osD^v"
APART = 0.075  # of the height of the axes, between two names
NEAR = 0.2  # of its width: closer ends have names one above the other
LOWEST = 0.03  # of its height, so that no name lies on the axis
LETTER, LINE = 5.5, 11  # points that a letter of a name is wide, and a line of it high
PLACES = ((6, -3, "left"), (-2, -14, "right"), (-2, 8, "right"), (2, -14, "left"), (2, 8, "left"))


def draw(lines, title, x, y, *, dots=None, marks=None, log="", limits=None, looks=None, axes=None):
    """Curves {name: (xs, ys)}, measured `dots` likewise, `marks` {name: x} as upright lines.

    Dots with the name of a curve have its colour and are not named again.  `marks` are dotted.
    `looks` {name: number} gives a name its colour, dashes and marker; others go by their order.
    `log` names the axes with a logarithmic scale ("x", "y" or "xy"), `limits` is the range of y.
    A line breaks where it is not finite, leaves the picture where it is outside of `limits`, and
    has its name where it was last seen.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4)[0]
    axes.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    axes.set_ylim(limits, auto=limits is None)
    given = looks or {}
    numbers = [given.get(name, order) for order, name in enumerate(lines)]
    ends = [_line(axes, name, line, limits, ls=DASHES[number % len(DASHES)], c=_colour(number))
            for number, (name, line) in zip(numbers, lines.items(), strict=True)]  # fmt: skip
    colours = {name: colour for name, *_, colour in ends}
    for order, (name, line) in enumerate((dots or {}).items()):
        colour = colours.get(name, _colour(given.get(name, len(lines) + order)))
        marker = MARKERS[given.get(name, order) % len(MARKERS)]
        end = _line(axes, name, line, limits, ls="", marker=marker, ms=5, c=colour)
        ends += [end] if name not in colours else []
    axes.set_ylim(axes.get_ylim())
    _name(axes, ends)
    for name, at in (marks or {}).items():
        axes.axvline(at, color="0.4", linestyle=(0, (1, 2)), linewidth=1.3)
        top = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(name, (at, 0), (4, 5), fontsize=9, color="0.3", **top)
    axes.spines[["top", "right"]].set_visible(False)
    if "x" not in log and all(_whole(xs) for xs, _ in (*lines.values(), *(dots or {}).values())):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    return named(axes, title, x, y)


def _whole(xs) -> bool:
    """Whether a line has its points at whole numbers: steps, epochs, ranks."""
    xs = np.asarray(xs, dtype=float)
    return bool((xs == np.round(xs)).all())


def _colour(number):
    return COLOURS[number % len(COLOURS)]


def _line(axes, name, line, limits, **looks):
    """Draw a line: its name, where it was last seen, its colour."""
    xs, ys = (np.asarray(each, dtype=float) for each in line)
    low, high = limits or (-np.inf, np.inf)
    seen = np.isfinite(ys) & (low <= ys) & (ys <= high)
    axes.plot(xs, np.where(np.isfinite(ys), ys, np.nan), label=name, **looks)
    return name, xs[seen][-1], ys[seen][-1], looks["c"]


def _name(axes, ends):
    """Write names beside the ends, one above the other where two would meet on the right, and on
    another side where lines would be hidden there."""
    axes.get_xlim(), axes.get_ylim()  # both ranges are known from here on
    to_share, points = axes.transData + axes.transAxes.inverted(), _points(axes)
    over = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
    looks = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
    places = {name: _free(axes, points, at, name) for name, *at, _ in ends}
    shares = {name: to_share.transform(at) for name, *at, _ in ends}
    heights = _stacked({name: shares[name] for name in places if places[name] == PLACES[0]})
    shares |= {name: (shares[name][0], up) for name, up in heights.items()}
    for name, *at, colour in sorted(ends, key=lambda end: end[0] not in heights):
        place = places[name] if name in heights else _free(axes, points, at, name)
        axes.annotate(name, shares[name], place[:2], color=colour, ha=place[2], bbox=over, **looks)
        box = _box(axes, axes.transAxes.transform(shares[name]), name, place)
        points = np.concatenate(
            [points, np.stack(np.meshgrid(*np.linspace(*box, 9).T), -1).reshape(-1, 2)]
        )


def _stacked(shares) -> dict:
    """Heights for names at `shares` {name: (across, up)} of the axes: of names that would meet, the
    lower ones go down and the upper ones up."""
    heights, groups = {}, []
    for name in sorted(shares, key=lambda name: shares[name][1]):
        up, (under, group) = max(shares[name][1], LOWEST), _under(name, shares, heights, groups)
        heights[name] = max(up, under)
        if up >= under:
            groups.append([name])
        else:
            group.append(name)
    for group in groups:
        rest = [each for each in groups if heights[each[0]] < heights[group[0]]]
        room = heights[group[0]] - max(LOWEST, _under(group[0], shares, heights, rest)[0])
        raised = heights[group[-1]] - max(shares[group[-1]][1], LOWEST)
        for name in group:
            heights[name] -= max(0, min(room, raised / 2))
    return heights


def _under(name, shares, heights, groups) -> tuple:
    """Where the names of the `groups` that stand near this one leave room for it, and below it the
    group of the highest of them."""
    tops = [
        (heights[each] + APART * (1 + each.count("\n")), group)
        for group in groups
        for each in group
        if abs(shares[each][0] - shares[name][0]) < NEAR
    ]
    return max(tops, key=lambda top: top[0], default=(-1.0, []))


def _free(axes, points, at, name):
    """That of the PLACES at which a name hides the fewest of the `points`, and not the axis."""

    def hidden(place):
        low, high = _box(axes, axes.transData.transform(at), name, place)
        if place[1] < PLACES[0][1] and low[1] < axes.bbox.y0:
            return len(points)  # it would lie on the axis
        return int(((low < points) & (points < high)).all(axis=1).sum())

    return min(PLACES, key=hidden)


def _box(axes, end, name, place):
    """The corners, in pixels, of a name at this of the PLACES beside the `end` of its line."""
    right, up, side = place
    rows = name.split("\n")
    wide, tall = LETTER * max(map(len, rows)), LINE * len(rows)
    left = right - (wide if side == "right" else 0)
    corners = np.array([(left, up - 2), (left + wide, up + tall)])
    return end + corners * axes.figure.dpi / 72


def _points(axes):
    """Points all along those parts of the lines that the axes show, in pixels: [points, 2]."""
    (_, low), (_, high) = axes.bbox.get_points()
    found, steps = [np.empty((0, 2))], np.linspace(0, 1, 30)[:, None, None]
    for line in axes.lines:
        with np.errstate(all="ignore"):
            corners = axes.transData.transform(np.asarray(line.get_xydata(), dtype=float))
            corners = corners[(np.abs(corners) < 1e6).all(axis=1)]
        between = (corners[:-1] + steps * np.diff(corners, axis=0)).reshape(-1, 2)
        found.append(between[(low <= between[:, 1]) & (between[:, 1] <= high)])
    return np.concatenate(found)
