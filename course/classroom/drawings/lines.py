"""Draw lines that are told apart without colour: each has its own dashes, and its name at its end.

`figures.curves` has a legend instead, which is shorter to read where there are many lines.
"""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
MARKERS = "osD^v"
APART = 0.075  # of the height of the axes, between two names
NEAR = 0.2  # of its width: closer ends have names one above the other


def draw(lines, title, x, y, *, dots=None, marks=None, log="", limits=None, axes=None):
    """Curves {name: (xs, ys)}, measured `dots` likewise, `marks` {name: x} as upright lines.

    Dots with the name of a curve have its colour and are not named again.  `marks` are dotted.
    `log` names the axes with a logarithmic scale ("x", "y" or "xy"), `limits` is the range of y.
    A line breaks where it is not finite, leaves the picture where it is outside of `limits`, and
    has its name where it was last seen.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4)[0]
    axes.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    axes.set_ylim(limits, auto=limits is None)
    ends = [_line(axes, name, line, limits, ls=DASHES[number % len(DASHES)], c=_colour(number))
            for number, (name, line) in enumerate(lines.items())]  # fmt: skip
    colours = {name: colour for name, *_, colour in ends}
    for number, (name, line) in enumerate((dots or {}).items()):
        colour = colours.get(name, _colour(len(lines) + number))
        looks = {"ls": "", "marker": MARKERS[number % len(MARKERS)], "ms": 5, "c": colour}
        end = _line(axes, name, line, limits, **looks)
        if name not in colours:
            below = {"textcoords": "offset points", "fontsize": 9, "color": colour}
            axes.annotate(name, end[1:3], (3, -14), **below)
    axes.set_ylim(axes.get_ylim())
    _name(axes, ends)
    for name, at in (marks or {}).items():
        axes.axvline(at, color="0.4", linestyle=(0, (1, 2)), linewidth=1.3)
        top = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(name, (at, 0), (4, 5), fontsize=9, color="0.3", **top)
    axes.spines[["top", "right"]].set_visible(False)
    return named(axes, title, x, y)


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
    """Write names beside the ends, the upper ones a little higher where two would meet."""
    axes.get_xlim(), axes.get_ylim()  # both ranges are known from here on
    to_share = axes.transData + axes.transAxes.inverted()
    over = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
    looks = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
    placed = []
    for name, x, y, colour in sorted(ends, key=lambda end: to_share.transform(end[1:3])[1]):
        across, up = to_share.transform((x, y))
        up = max([up, *(top for place, top in placed if abs(place - across) < NEAR)])
        axes.annotate(name, (across, up), (6, -3), color=colour, bbox=over, **looks)
        placed.append((across, up + APART * (1 + name.count("\n"))))
