"""Draw what a change does to several scores: an arrow for each, from before to after."""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

MARKERS = "so^D"


def draw(before, after, kinds, title, x, *, guess=None, axes=None):
    """A row for each of `before` {name: scores}, ordered by its mean `after`, the best on top.

    A hollow mark is the mean before, a full one the mean after with its number, an arrow joins
    them, and a thin line reaches from the lowest to the highest of the scores after.  `kinds`
    {name: kind} gives the marks their shape and colour; `guess` is a dotted upright line.
    Returns the axes.
    """
    axes = axes or panels(1, width=8, height=1.6 + 0.36 * len(before))[0]
    names = sorted(before, key=lambda name: -np.mean(after[name]))
    looks = dict(zip(dict.fromkeys(kinds.values()), zip(COLOURS, MARKERS, strict=False),
                     strict=False))  # fmt: skip
    for row, name in enumerate(names):
        _row(axes, row, before[name], after[name], *looks[kinds[name]])
    for kind, (colour, marker) in looks.items():
        axes.plot([], [], marker, color=colour, label=kind)
    if guess is not None:
        axes.axvline(guess, color="0.4", linestyle=(0, (1, 2)))
        axes.annotate("a guess", (guess, 1), (4, -10), xycoords=("data", "axes fraction"),
                      textcoords="offset points", fontsize=9, color="0.3")  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": len(looks)}
    axes.legend(frameon=False, fontsize=9, **below)
    axes.spines[["top", "right"]].set_visible(False)
    named(axes, title, x, "").invert_yaxis()
    return axes


def _row(axes, row, before, after, colour, marker):
    start, end = float(np.mean(before)), float(np.mean(after))
    axes.annotate("", (end, row), (start, row), arrowprops={"arrowstyle": "->", "color": "0.6"})
    axes.plot([np.min(after), np.max(after)], [row, row], color=colour, linewidth=1.2)
    axes.plot(start, row, marker, mfc="white", mec=colour, ms=7)
    axes.plot(end, row, marker, color=colour, ms=7)
    axes.annotate(f"{end:.0f}", (end, row), (0, 7), textcoords="offset points", ha="center",
                  fontsize=9, color=colour)  # fmt: skip
