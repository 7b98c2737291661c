"""Draw how many tokens each expert sees, from which ranks they come, and how many are dropped."""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

HATCHES = ("", "//", "..", "xx")


def draw(plan, title, *, capacity=None, axes=None):
    """A bar for each expert of a `DispatchPlan`, which stands above the rank that has it: stacked
    by rank the tokens that it sees, above them those that have chosen it and are dropped.  Upright
    at the top stands how many it sees; lines mark the even share and the `capacity`.  Returns the
    axes."""
    count = len(plan.tokens)
    axes = axes or panels(1, width=7.8, height=3.9)[0]
    below = np.zeros(count)
    for rank, kept in enumerate(plan.kept):
        looks = {"color": COLOURS[rank % len(COLOURS)], "hatch": HATCHES[rank % len(HATCHES)]}
        axes.bar(range(count), kept, 0.7, below, ec="white", label=f"from rank {rank}", **looks)
        below += kept
    looks = {"color": "none", "ec": "0.3", "linestyle": "--", "label": "dropped"}
    axes.bar(range(count), plan.dropped, 0.7, below, **looks)
    for expert, (seen, dropped) in enumerate(zip(plan.tokens, plan.dropped)):
        axes.text(expert, seen + dropped, str(seen), ha="center", va="bottom", fontsize=9)
    _level(axes, sum(map(sum, plan.asked)) / count, "even share", (0, (1, 2)))
    if capacity is not None:
        _level(axes, capacity, "capacity", "--")
    owners = np.searchsorted(plan.cuts, range(count), side="right") - 1
    axes.set_xticks(range(count), [f"{expert}\nrank {rank}" for expert, rank in enumerate(owners)])
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    named(axes, title, "expert, and the rank that has it", "tokens")
    axes.legend(loc="center left", bbox_to_anchor=(1.12, 0.5), frameon=False, fontsize=9)
    return axes


def _level(axes, height, name, dash):
    axes.axhline(height, color="0.2", linestyle=dash, linewidth=1.3, zorder=3)
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(name, (1, height), (3, -3), fontsize=9, color="0.2", **place)
