"""Draw the eight collectives on one card: the blocks that each rank holds before and after, from a
run of all of them."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle

from course.classroom.figures import COLOURS
from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

WHAT = {  # two in a row: many of them are each other's reverse
    "broadcast": "one has all, all need all",
    "reduce": "each has all, one needs the sums",
    "scatter": "one has all, each needs one part",
    "gather": "each has one part, one needs all",
    "all_gather": "each has one part, all need all",
    "reduce_scatter": "each has all, each needs one sum",
    "all_to_all": "each has one part for each",
    "all_reduce": "each has all, all need the sums",
}
NOTHING = float("nan")
SUM, EMPTY = "0.25", "#F4F4F4"
APART = 2.0  # between before and after, in blocks


def all_eight(comm):
    """{collective: (what this rank holds before, after)}: p blocks of one number each, those of
    rank 2 being 20, 21, 22, ...; NOTHING where it has none, or none that counts."""
    r, root, p = comm.rank, comm.rank == 0, comm.size
    mine = 10.0 * r + torch.arange(float(p))
    one, nothing = torch.where(torch.arange(p) == r, mine, NOTHING), torch.full((p,), NOTHING)
    start = {name: one if "gather" in name else mine for name in WHAT}
    start |= dict.fromkeys(("broadcast", "scatter"), mine if root else nothing)
    in_place = "broadcast", "reduce", "all_reduce"
    after = {name: (start[name] if name in in_place else nothing).clone() for name in WHAT}
    here = slice(r, r + 1)
    broadcast(comm, after["broadcast"])
    reduce(comm, after["reduce"])
    all_reduce(comm, after["all_reduce"])
    scatter(comm, after["scatter"][here], mine.split(1) if root else None)
    gather(comm, mine[here], after["gather"].split(1) if root else None)
    all_gather(comm, after["all_gather"].split(1), mine[here])
    reduce_scatter(comm, after["reduce_scatter"][here], mine.split(1))
    all_to_all(comm, after["all_to_all"].split(1), mine.split(1))
    after["reduce"] = after["reduce"] if root else nothing  # the others' are of no use to anybody
    return {name: (start[name].tolist(), after[name].tolist()) for name in WHAT}


def draw(held, names=tuple(WHAT)):
    """What `all_eight` has returned on each rank, as blocks, for each of `names`; returns the axes
    {collective: axes}.

    A row is a rank; a block has the colour of the rank that it began on, a sum is dark.
    """
    looks = {"figsize": (9.6, 2.35 * len(names) / 2), "layout": "constrained"}
    _, grid = plt.subplots(len(names) // 2, 2, **looks)
    card = dict(zip(names, grid.flat, strict=True))
    for name, axes in card.items():
        ranks = [each[name] for each in held]
        _panel(axes, name, ranks)
    return card


def _panel(axes, name, ranks):
    """One collective: `ranks` [(before, after) of each]."""
    p = len(ranks)
    axes.set_title(f"{name}: {WHAT[name]}", loc="left", fontsize=10.5)
    for side, (title, left) in enumerate((("before", 0), ("after", p + APART))):
        axes.text(left + p / 2, -0.15, title, ha="center", va="bottom", fontsize=9, color="0.35")
        for rank, both in enumerate(ranks):
            for part, number in enumerate(both[side]):
                _block(axes, left + part, rank, number, summed=side and "reduce" in name)
    arrow = {"arrowstyle": "-|>", "color": "0.35", "lw": 1.5}
    axes.annotate("", (p + APART - 0.3, p / 2), (p + 0.3, p / 2), arrowprops=arrow)
    axes.set(xlim=(-0.1, 2 * p + APART + 0.9), ylim=(p + 0.1, -0.8), aspect="equal", xticks=[])
    axes.set_yticks([rank + 0.5 for rank in range(p)], [f"rank {rank}" for rank in range(p)])
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)


def _block(axes, x, y, number, summed):
    """A place [1 x 1] and the number in it; pale where there is none."""
    empty = number != number
    colour = EMPTY if empty else SUM if summed else COLOURS[int(number // 10) % len(COLOURS)]
    alpha = 1 if empty or summed else 0.55
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", alpha=alpha))
    if not empty:
        ink = "white" if summed else "black"
        axes.text(x + 0.5, y + 0.5, f"{number:g}", ha="center", va="center", fontsize=9, color=ink)
