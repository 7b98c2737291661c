"""Draw how one learned feature is computed: frame, patch, atom, match, rectified, pooled."""

import numpy as np
from matplotlib.patches import Rectangle

from course.classroom.figures import COLOURS, panels

WAY = (
    "a frame and one\nof its patches",
    "the atom",
    "match of the atom\nat every place",
    "rectified: a threshold\nsubtracted, not below 0",
    "pooled: the mean\nof each quarter",
)


def draw(frame, place, atom, match, rectified, pooled, title):
    """A `frame` [height, width] with the patch at `place` (row, column), the `atom` [side, side],
    its `match` and that `rectified` [places, places], and the `pooled` means of the four quarters
    [2, 2], from left to right.  Returns the five axes.
    """
    axes = panels(5, width=2.35, height=3.0)
    steepest = float(np.abs(np.asarray(match)).max())
    largest = float(np.abs(np.asarray(atom)).max())
    ranges = (0, 1), (-largest, largest), *[(-steepest, steepest)] * 3
    parts = zip(axes, (frame, atom, match, rectified, pooled), ranges, WAY, strict=True)
    for each, picture, (low, high), words in parts:
        each.imshow(np.asarray(picture), cmap="gray", vmin=low, vmax=high)
        each.set(xticks=[], yticks=[])
        each.set_title(words, fontsize=9.5)
    _patch(axes[0], place, len(atom))
    for each in axes[2:4]:
        _spot(each, place)
    _quarters(axes[3], len(rectified))
    _numbers(axes[4], pooled)
    for each in axes[1:]:
        each.annotate("→", (-0.07, 0.5), xycoords="axes fraction", ha="center", va="center",
                      fontsize=14)  # fmt: skip
    axes[0].figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return axes


def _patch(axes, place, side):
    row, column = place
    box = Rectangle((column - 0.5, row - 0.5), side, side, fill=False, ec=COLOURS[1], lw=2)
    axes.add_patch(box)


def _spot(axes, place):
    row, column = place
    axes.plot(column, row, "s", mfc="none", mec=COLOURS[1], ms=7, mew=2)


def _quarters(axes, places):
    middle = (places - 1) / 2
    axes.axhline(middle, color=COLOURS[4], lw=1.5, ls="--")
    axes.axvline(middle, color=COLOURS[4], lw=1.5, ls="--")


def _numbers(axes, pooled):
    for (row, column), value in np.ndenumerate(np.asarray(pooled)):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=10, bbox=box)
