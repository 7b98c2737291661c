"""The work of training as a box, images x neurons x layers, and the three ways to cut it.

`draw()` shows them side by side, with the name of each, what has to cross the cut, and where.
"""

from typing import NamedTuple

from matplotlib.patches import Patch, Polygon

from course.classroom.figures import COLOURS, named, panels

DEPTH = (0.5, 0.36)  # how an image further back is shifted, in neurons and in layers
GAP = 0.22  # between two parts, as a share of the box
REACH = 0.14  # of an arrow, into the parts on both sides of a cut
SHADES = (1.0, 0.75, 0.5)  # front, top and right side
ARROWS = (  # name, start, end, where the name stands and how it is turned
    ("neurons", (0, -0.1), (1, -0.1), (0.5, -0.23), 0),
    ("layers", (-0.12, 0), (-0.12, 1), (-0.25, 0.5), 90),
    ("images", (1.12, -0.1), (1.62, 0.26), (1.48, 0.0), 36),
)


class Cut(NamedTuple):
    """A way to cut: through which axis of the box, what the parts are called, what crosses."""

    name: str
    axis: int
    what: str
    crosses: str


CUTS = (
    Cut("Data parallel", 2, "cut the images", "gradients of all weights"),
    Cut("Model parallel", 0, "cut the neurons", "activations of each layer"),
    Cut("Pipeline", 1, "cut the layers", "activations at the cut"),
)


def draw(ranks=2):
    """The three cuts among `ranks` ranks; returns their axes."""
    drawn = panels(len(CUTS), width=3.3, height=3.3)
    for axes, cut in zip(drawn, CUTS, strict=True):
        named(axes, f"{cut.name}: {cut.what}", "", "").set_axis_off()
        parts = [_part(cut.axis, rank, ranks) for rank in range(ranks)]
        order = reversed(range(ranks)) if cut.axis == 2 else range(ranks)  # what is behind, first
        for rank in order:
            _box(axes, *parts[rank], COLOURS[rank])
        axes.text(0.75, -0.42, f"what crosses:\n{cut.crosses}", ha="center", va="top")
        for rank in range(1, ranks):
            _exchange(axes, cut.axis, rank / ranks)
        axes.set(xlim=(-0.3, 2.0), ylim=(-0.85, 1.7), aspect="equal")
    _name_axes(drawn[0])
    labels = [Patch(color=COLOURS[rank], label=f"rank {rank}") for rank in range(ranks)]
    drawn[-1].legend(handles=labels, frameon=False, loc="center", bbox_to_anchor=(0.87, 0.3))
    return drawn


def _part(axis, rank, ranks):
    """The corner and the size [neurons, layers, images] of a rank's part of the unit box."""
    corner, size = [0.0] * 3, [1.0] * 3
    corner[axis], size[axis] = rank * (1 + GAP) / ranks, 1 / ranks
    return corner, size


def _box(axes, corner, size, colour):
    """The three faces of a box that are seen from the upper right."""
    x, y, z = corner
    w, h, d = size
    front = [(x, y, z), (x + w, y, z), (x + w, y + h, z), (x, y + h, z)]
    top = [(x, y + h, z), (x + w, y + h, z), (x + w, y + h, z + d), (x, y + h, z + d)]
    right = [(x + w, y, z), (x + w, y, z + d), (x + w, y + h, z + d), (x + w, y + h, z)]
    for face, shade in zip((front, top, right), SHADES, strict=True):
        points = [_flat(point) for point in face]
        axes.add_patch(Polygon(points, facecolor="white", edgecolor="none"))
        axes.add_patch(Polygon(points, facecolor=colour, alpha=shade, edgecolor="white", lw=1.2))


def _exchange(axes, axis, cut):
    """An arrow across a cut, from part to part and back."""
    ends = []
    for at in (cut - REACH, cut * (1 + GAP) + REACH):
        point = [1.0, 0.5, 0.0] if axis == 2 else [0.5, 0.5, 0.0]
        point[axis] = at
        ends.append(_flat(point))
    looks = {"arrowstyle": "<->", "color": "black", "lw": 2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", *ends, arrowprops=looks, zorder=5)


def _flat(point):
    """Where a point (neurons, layers, images) is on paper."""
    x, y, z = point
    return x + z * DEPTH[0], y + z * DEPTH[1]


def _name_axes(axes):
    for name, start, end, middle, angle in ARROWS:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->"})
        axes.text(*middle, name, ha="center", va="center", rotation=angle, fontsize=9)
