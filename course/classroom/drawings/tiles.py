"""Draw a photograph that is cut over ranks: whose tile is where, and the border it fetches."""

import numpy as np
from matplotlib.patches import Rectangle

from course.classroom.figures import COLOURS, named, panels
from course.parallel.array import Box

DASHES = ("-", "--", "-.", ":")


def draw(photograph, layout, regions, title, *, shown=None):
    """The tiles of `layout` on a photograph [height, width], and of each rank in `shown` (all, by
    default) the box of `regions` that it asks for, the part of it that it does not own in colour.

    Rectangles lie where boxes do: index 0 begins at 0.  Returns the axes.
    """
    height, width = layout.shape
    axes = panels(1, width=6.6, height=0.9 + 5.6 * height / width)[0]
    axes.imshow(np.asarray(photograph), cmap="gray", vmin=0, vmax=1, extent=(0, width, height, 0))
    for rank, box in enumerate(layout.boxes()):
        axes.add_patch(_rectangle(box, edgecolor="white", facecolor="none", linewidth=1))
        (top, bottom), (left, right) = box.intervals
        name = f"rank {rank}" if right - left > width / 8 else str(rank)
        axes.text((left + right) / 2, (top + bottom) / 2, name, color="white", ha="center",
                  va="center", bbox={"color": "0.2", "pad": 2})  # fmt: skip
    for rank in range(layout.ranks) if shown is None else shown:
        colour, dash = COLOURS[1 + rank % 6], DASHES[rank % 4]
        for piece in border(regions[rank], layout.box(rank)):
            axes.add_patch(_rectangle(piece, facecolor=colour, alpha=0.45, linewidth=0))
        axes.add_patch(_rectangle(regions[rank], edgecolor=colour, facecolor="none", linewidth=2,
                                  linestyle=dash))  # fmt: skip
    return named(axes, title, "column (pixels)", "row (pixels)")


def border(region, own) -> list[Box]:
    """What of a region [rows, columns] is not in the box `own`: above, below, left and right."""
    inside = region.meet(own)
    (top, bottom), across = region.intervals
    (first, last), (left, right) = inside.intervals
    pieces = [Box.of((top, first), across), Box.of((last, bottom), across)]
    pieces += [Box.of((first, last), (across[0], left)), Box.of((first, last), (right, across[1]))]
    return [piece for piece in pieces if piece.size]


def _rectangle(box, **looks):
    (top, bottom), (left, right) = box.intervals
    return Rectangle((left, top), right - left, bottom - top, **looks)
