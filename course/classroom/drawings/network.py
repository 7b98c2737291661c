"""Draw a small network with a number on every unit and on every edge: `draw` it forward, with
activations and weights, or backward, with what reaches each unit and the slope of each weight.
"""

import numpy as np
from matplotlib.patches import Circle

from course.classroom.figures import COLOURS, named, panels

APART = 2.2  # between two layers; units of one layer are 1 apart
RADIUS = 0.24  # of a unit
THICKEST = 3.2  # points, the edge whose number is largest


def draw(units, edges, title, *, layers=(), back=(), letter="g", decimals=2, axes=None):
    """Layers of `units` [count] each, from left to right, and between two of them `edges`
    [count before, count behind]; `layers` names them.  Numbers have so many `decimals` at most.
    Returns the axes.

    `back` has, for each layer, what comes back to its units, or nothing: it stands below them after
    the `letter`, and arrows point left.  Negative edges are dashed, larger ones thicker.
    """
    tallest = max(map(len, units)) / 2
    axes = axes or panels(1, width=7.6, height=0.75 + 1.2 * (2 * tallest + 0.2))[0]
    at = [places(column, len(row)) for column, row in enumerate(units)]
    scale = max(np.abs(np.asarray(table)).max() for table in edges)
    for before, behind, table in zip(at[:-1], at[1:], edges, strict=True):
        share = spot(before, behind)
        for i, j in np.ndindex(np.shape(table)):
            ends = (behind[j], before[i]) if len(back) else (before[i], behind[j])
            _edge(axes, *ends, float(table[i][j]), scale)
            place = before[i] + share * (behind[j] - before[i])
            _label(axes, place, shown(table[i][j], decimals))
    for row, points, name in zip(units, at, [*layers, *[""] * len(at)], strict=False):
        _layer(axes, row, points, name, decimals)
    for slopes, points in zip(back, at, strict=False):
        for slope, (x, y) in zip(slopes, points, strict=len(slopes) > 0):
            _label(axes, (x, y - 1.5 * RADIUS), f"{letter} = {shown(slope, decimals)}")
    axes.set(xlim=(-0.6, at[-1][0][0] + 0.6), ylim=(-tallest, tallest + 0.2), aspect="equal")
    named(axes, title, "", "").set_axis_off()
    return axes


def places(column: int, count: int) -> np.ndarray:
    """Where the units of a layer are drawn [count, 2], the first on top."""
    return np.array([(APART * column, (count - 1) / 2 - unit) for unit in range(count)])


def spot(before, behind) -> float:
    """How far along its edge each number stands, so that no two come close to each other."""

    def closest(share):
        heights = np.add.outer((1 - share) * before[:, 1], share * behind[:, 1])
        return np.diff(np.sort(heights.ravel())).min(initial=np.inf).round(9)

    return float(max((k / 60 for k in range(15, 46)), key=closest))


def shown(number, decimals=2) -> str:
    """A number with so many decimals at most: 1, -0.75, 0.3."""
    text = f"{float(number):.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "−")


def _edge(axes, start, end, number, scale):
    colour, dashes = (COLOURS[0], "-") if number > 0 else (COLOURS[1], (0, (4, 2)))
    looks = {"arrowstyle": "-|>", "color": colour if number else "0.7", "linestyle": dashes}
    looks |= {"linewidth": 0.6 + (THICKEST - 0.6) * abs(number) / (scale or 1)}
    along = RADIUS * (end - start) / np.hypot(*(end - start))
    axes.annotate("", end - along, start + along, arrowprops=looks | {"shrinkA": 0, "shrinkB": 0})


def _label(axes, place, text):
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    axes.text(*place, text, ha="center", va="center", fontsize=10, bbox=box, zorder=5)


def _layer(axes, row, points, name, decimals):
    for number, (x, y) in zip(row, points, strict=True):
        looks = {"facecolor": "#EEF4F8", "edgecolor": "0.3", "zorder": 4}
        axes.add_patch(Circle((x, y), RADIUS, **looks))
        axes.text(x, y, shown(number, decimals), ha="center", va="center", fontsize=11, zorder=6)
    axes.text(points[0][0], points[0][1] + 2 * RADIUS, name, ha="center", fontsize=10, color="0.35")
