"""Draw a convolution as a matrix product: windows of a picture, and the columns they become."""

from itertools import product

import numpy as np
from matplotlib.patches import Rectangle

from course.classroom.figures import COLOURS, named, panels

TINTS = ("#BBD7EA", "#F5CDB0")  # of the marked windows, light enough for numbers
SPACE = 1.6  # between two tables, in cells


def draw(picture, taps, title, *, marked=(0, -1), axes=None):
    """A picture [height, width] and, below it, `taps` as a row times the columns of all places.

    The windows at the two `marked` places are coloured, and so are their columns and results.
    Returns the axes.
    """
    picture, taps = np.asarray(picture), np.asarray(taps)
    seen = np.lib.stride_tricks.sliding_window_view(picture, taps.shape)
    columns = seen.reshape(-1, taps.size).T
    places = [place % columns.shape[1] for place in marked]
    axes = axes or panels(1, width=8.2, height=4.4)[0]
    tables = {"taps": taps.reshape(1, -1), "a column for each place": columns,
              "results": taps.reshape(1, -1) @ columns}  # fmt: skip
    left, top, middle = 0.0, -len(picture) - SPACE, columns.shape[0] / 2
    _table(axes, picture, SPACE, 0.0, "picture")
    for number, (name, values) in enumerate(tables.items()):
        tints = {} if name == "taps" else dict(zip(places, TINTS, strict=True))
        down = top - middle + len(values) / 2
        _table(axes, values, left, down, name, tints)
        left += values.shape[1] + SPACE
        axes.text(left - SPACE / 2, top - middle, "·= "[number], ha="center", va="center", size=13)
    for place, tint, colour in zip(places, TINTS, COLOURS, strict=False):
        row, column = divmod(place, seen.shape[1])
        corner = SPACE + column, -row - taps.shape[0]
        looks = {"facecolor": tint, "edgecolor": colour, "alpha": 0.6, "linewidth": 2.5}
        axes.add_patch(Rectangle(corner, *taps.shape[::-1], **looks))
    axes.set(xlim=(-0.3, left - SPACE + 0.3), ylim=(top - 2 * middle - 0.3, 1.0), aspect="equal")
    named(axes, title, "", "").set_axis_off()
    return axes


def _table(axes, values, left, top, name, tints=None):
    """Numbers in cells of size 1, the upper left corner given; columns of `tints` are coloured."""
    for i, j in product(*map(range, values.shape)):
        looks = {"facecolor": (tints or {}).get(j, "white"), "edgecolor": "0.5"}
        axes.add_patch(Rectangle((left + j, top - i - 1), 1, 1, **looks))
        axes.text(left + j + 0.5, top - i - 0.5, f"{values[i, j]:g}", ha="center", va="center",
                  fontsize=9, zorder=5)  # fmt: skip
    axes.text(left, top + 0.25, name, fontsize=9.5, color="0.35")
