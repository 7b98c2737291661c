"""Draw how many tokens each expert sees, from which ranks they come, and how many are dropped."""

import itertools

import numpy as np

from course.classroom.figures import COLOURS, named, panels

HATCHES = ("", "//", "..", "xx")
NUMBER = {"ha": "center", "fontsize": 9, "zorder": 4,
          "bbox": {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 0.2}}  # fmt: skip
OWNER = {"ha": "center", "va": "top", "fontsize": 10}


def draw(plan, title, *, capacity=None, axes=None):
    """A bar for each expert of a `DispatchPlan`, which stands above the rank that has it: stacked
    by rank the tokens that it sees, above them those that have chosen it and are dropped.  At the
    top stands how many have chosen it, and where some are dropped, below them how many it sees;
    lines mark the even share and the `capacity`.  Returns the axes."""
    count = len(plan.tokens)
    axes = axes or panels(1, width=7.8, height=3.9)[0]
    below = np.zeros(count)
    for rank, kept in enumerate(plan.kept):
        looks = {"color": COLOURS[rank % len(COLOURS)], "hatch": HATCHES[rank % len(HATCHES)]}
        axes.bar(range(count), kept, 0.7, below, ec="white", label=f"from rank {rank}", **looks)
        below += kept
    axes.bar(range(count), plan.dropped, 0.7, below, fc="none", ec="0.3", ls="--", label="dropped")
    for expert, (seen, dropped) in enumerate(zip(plan.tokens, plan.dropped)):
        axes.text(expert, seen + dropped, str(seen + dropped), va="bottom", **NUMBER)
        if dropped:
            axes.text(expert, seen - axes.get_ylim()[1] / 60, str(seen), va="top", **NUMBER)
    share = sum(map(sum, plan.asked)) / count
    _mark(axes, {share: "even share", capacity: "capacity" + " = even share" * (capacity == share)})
    _name_owners(axes, plan)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    named(axes, title, "\nexpert, and the rank that has it", "tokens")
    axes.legend(loc="center left", bbox_to_anchor=(1.15, 0.5), frameon=False, fontsize=9)
    return axes


def _mark(axes, levels):
    """A line across at each of the `levels` {height or None: name}, named at its right end, the
    lower one below it."""
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 9}
    for at, above in zip(sorted(levels.keys() - {None}), (-9, 3)):
        axes.axhline(at, c="0.2", ls="--" if "capacity" in levels[at] else ":", lw=1.3, zorder=3)
        axes.annotate(levels[at], (1, at), (3, above), color="0.2", **place)


def _name_owners(axes, plan):
    """The number of each expert, and under the middle one of each rank's the rank."""
    for rank, (first, end) in enumerate(itertools.pairwise(plan.cuts)):
        axes.text((first + end - 1) / 2, -0.09, f"rank {rank}", **OWNER,
                  transform=axes.get_xaxis_transform())  # fmt: skip
        if first:
            axes.axvline(first - 0.5, color="0.75", linewidth=1, zorder=0)
    axes.set_xticks(range(len(plan.tokens)), [str(expert) for expert in range(len(plan.tokens))])
