"""Draw which ranks are late after each of several programs: a row each, a square for each rank."""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

IN_TIME, LATE = "#DDDDDD", COLOURS[1]


def draw(ends_ms, limit_ms, title, axes=None):
    """A row for each of `ends_ms` {name: when each rank ends}: the ranks that end later than
    `limit_ms` are large and dark, and their number stands at the end.  Returns the axes.
    """
    axes = axes or panels(1, width=8.6, height=0.9 + 0.42 * len(ends_ms))[0]
    for row, ends in enumerate(ends_ms.values()):
        late = np.asarray(ends) > limit_ms
        for here, colour, size in ((~late, IN_TIME, 3.5), (late, LATE, 6.5)):
            ranks = np.flatnonzero(here)
            axes.plot(ranks, np.full(len(ranks), row), "s", color=colour, ms=size)
        text = f"  {late.sum()} of {len(late)} late"
        axes.text(len(late) - 0.2, row, text, va="center", fontsize=9)
    axes.set_yticks(range(len(ends_ms)), list(ends_ms))
    axes.set(xlim=(-1, len(late)), ylim=(len(ends_ms) - 0.5, -0.5))
    axes.spines[["top", "right", "left"]].set_visible(False)
    return named(axes, title, "rank", "")
