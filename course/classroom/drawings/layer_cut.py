"""Draw a layer that is cut in two, as the matrix product that each rank does: whose numbers it has,
and which of them came from the other."""

from matplotlib.patches import Patch, Rectangle

from course.classroom.figures import COLOURS, named, panels

SPACE = 1.3  # between two matrices, in cells
BETWEEN = 1.7  # between the rows of two ranks
BATCH, NEURONS = 2, 4


def draw():
    """The cut by images and the cut by neurons of a layer 4 → 4 with 2 images, among two ranks.

    Returns the axes of both.
    """
    drawn = panels(2, width=5.2, height=4.4)
    for axes, (title, cut, crosses) in zip(drawn, CUTS, strict=True):
        named(axes, title, "", "").set_axis_off()
        top = 0.0
        for rank in range(2):
            height = _product(axes, top, rank, cut(rank))
            top -= height + BETWEEN
        axes.text(0, top + BETWEEN - 0.5, crosses, va="top", fontsize=9.5)
        axes.set(xlim=(-1.9, 14.8), ylim=(-12.2, 1.0), aspect="equal")
    labels = [Patch(color=COLOURS[rank], label=f"held by rank {rank}") for rank in range(2)]
    labels.append(Patch(facecolor="white", edgecolor="0.3", hatch="////", label="arrived"))
    below = {"loc": "outside lower center", "ncols": len(labels), "frameon": False}
    drawn[0].figure.legend(handles=labels, fontsize=9, **below)
    return drawn


def _images(rank):
    """Own image, all weights: (name, rows, columns, whose each column is)."""
    own = [rank] * NEURONS
    return ("x", 1, own), ("W", NEURONS, own), ("y", 1, own)


def _neurons(rank):
    """All images of own and of arrived neurons, own columns of the weights."""
    half = NEURONS // 2
    inputs = [0] * half + [1] * half
    return ("x", BATCH, inputs), ("W", NEURONS, [rank] * half), ("y", BATCH, [rank] * half)


CUTS = (
    ("Images cut: each rank has one image", _images,
     "What crosses: the gradient of W,\n16 numbers each way"),
    ("Neurons cut: each rank has half of the columns", _neurons,
     "What crosses: half of x forward (hatched), as much\nbackward: 4 + 4 numbers each way"),
)  # fmt: skip


def _product(axes, top, rank, matrices):
    """x W = y of one rank, its upper edge at `top`; returns the height in cells."""
    height, left = max(rows for _, rows, _ in matrices), 0.0
    axes.text(-0.5, top - height / 2, f"rank {rank}", ha="right", va="center", rotation=90)
    for (name, rows, owners), sign in zip(matrices, "·= ", strict=True):
        upper = top - (height - rows) / 2
        for row in range(rows):
            for column, owner in enumerate(owners):
                _cell(axes, left + column, upper - row - 1, owner, owner != rank)
        axes.text(left + len(owners) / 2, upper + 0.15, name, ha="center", style="italic")
        left += len(owners) + SPACE
        axes.text(left - SPACE / 2, top - height / 2, sign, ha="center", va="center", fontsize=13)
    return height


def _cell(axes, x, y, owner, arrived):
    looks = {"facecolor": COLOURS[owner], "edgecolor": "white", "hatch": "////" if arrived else ""}
    axes.add_patch(Rectangle((x, y), 1, 1, **looks))
