"""Draw a grid of ranks once for each of its axes: who is together along it."""

import itertools

from matplotlib.patches import Rectangle

from course.classroom.figures import COLOURS, named, panels

SIDE, LETTERS = 0.92, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw(sizes, groups, title):
    """The ranks of a grid of `sizes` {axis: ranks}, the last axis from left to right, all others
    downwards; a panel for each of `groups` {axis: [ranks of a group, ...]}, in which the ranks of a
    group have one colour and one letter.  Returns the axes.
    """
    *others, last = sizes
    rows = list(itertools.product(*(range(sizes[name]) for name in others)))
    width, height = 0.9 + 0.95 * sizes[last], 1.5 + 0.62 * len(rows)
    drawn = panels(len(groups), width=max(2.9, width), height=height)
    for axes, (name, members) in zip(drawn, groups.items(), strict=True):
        for number, group in enumerate(members):
            for rank in group:
                _rank(axes, *reversed(divmod(rank, sizes[last])), rank, number)
        told = [", ".join(f"{a} {at}" for a, at in zip(others, row, strict=True)) for row in rows]
        axes.set_yticks(range(len(rows)), told)
        axes.set_xticks(range(sizes[last]), [str(at) for at in range(sizes[last])])
        axes.set(xlim=(-0.5, sizes[last] - 0.5), ylim=(len(rows) - 0.5, -0.5))
        named(axes, f"{name}: {len(members)} groups of {len(members[0])}", last, "")
    drawn[0].figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return drawn


def _rank(axes, x, y, rank, number):
    colour, corner = COLOURS[number % len(COLOURS)], (x - SIDE / 2, y - SIDE / 2)
    axes.add_patch(Rectangle(corner, SIDE, SIDE, facecolor=colour, alpha=0.3, edgecolor=colour))
    text = f"rank {rank}\n{LETTERS[number % len(LETTERS)]}"
    axes.text(x, y, text, ha="center", va="center", fontsize=9)
