"""Draw numbers of a few kinds for each of a few things: a row for each, a mark for each kind."""

from course.classroom.drawings.lines import MARKERS
from course.classroom.figures import COLOURS, named, panels


def draw(rows, title, x, *, log=False, marks=None, axes=None):
    """`rows` {thing: {kind: number}}, the first on top; `marks` {name: x} are upright lines.

    The kinds are named above the top row, told apart by marker and colour.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4, height=1.5 + 0.42 * len(rows))[0]
    axes.set_xscale("log" if log else "linear")
    kinds = list(dict.fromkeys(kind for values in rows.values() for kind in values))
    for place, values in enumerate(rows.values()):
        axes.plot([min(values.values()), max(values.values())], [place] * 2, color="0.75", zorder=1)
    for number, kind in enumerate(kinds):
        at = [(values[kind], place) for place, values in enumerate(rows.values()) if kind in values]
        looks = {"marker": MARKERS[number], "ls": "", "ms": 7, "color": COLOURS[number]}
        axes.plot(*zip(*at, strict=True), label=kind, **looks)
    for name, value in (marks or {}).items():
        axes.axvline(value, color="0.4", linestyle=(0, (1, 2)), linewidth=1.3)
        axes.annotate(name, (value, len(rows) - 0.5), (3, 2), textcoords="offset points",
                      fontsize=9, color="0.3")  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)
    named(axes, title, x, "")
    below = -0.95 / (1.5 + 0.42 * len(rows))  # as far below the axis whatever the height
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, below), frameon=False, ncols=len(kinds),
                fontsize=9)  # fmt: skip
    return axes
