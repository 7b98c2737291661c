"""Draw what a rank did in a step of each framework: a lane for arithmetic, one for messages."""

from course.classroom.timeline import Piece, lanes
from course.cluster.frameworks.chrome import BACKWARD, STEP

ARITHMETIC = "arithmetic"
FINEST = 1 / 250  # of the longest step: gaps that are shorter are not drawn


def draw(works, title, axes=None):
    """`works` {name: list of Work of one step, as `work_of_step` gives} below one another, in
    milliseconds from the step's beginning, a line from where its backward begins to where it ends.
    White is neither: Python, or waiting.  Returns axes."""
    ends = {name: _end(work) for name, work in works.items()}
    gap, rows = FINEST * max(ends.values()), {}
    for name, work in works.items():
        kinds = {each.what for each in work} - {ARITHMETIC, BACKWARD, STEP}
        rows[f"{name}, {1e3 * ends[name]:.0f} ms"] = _pieces(work, {ARITHMETIC}, gap)
        if kinds:
            rows[f"{name}, messages"] = _pieces(work, kinds, gap)
    axes = lanes(rows, title, "time (ms) of a step of rank 0; black: backward, grey: the end", axes)
    for y, label in enumerate(rows):
        if not label.endswith("messages"):
            name = label.rpartition(",")[0]
            axes.plot([1e3 * ends[name]] * 2, [y - 0.45, y + 0.45], color="0.3", lw=1.5)
            times = [1e3 * t for each in works[name] if each.what == BACKWARD for t in each[1:]]
            axes.plot(times[:1] + times[-1:], [y - 0.46] * len(times[:2]), "k|-", lw=1.2, ms=5)
    axes.set_xlim(0, 1.02e3 * max(ends.values()))
    return axes


def _end(work) -> float:
    return next(each.end for each in work if each.what == STEP)


def _pieces(work, kinds, gap) -> list:
    """Bars in milliseconds, those of a kind with less than a `gap` between them joined."""
    joined = []
    for each in (each for each in work if each.what in kinds):
        if joined and joined[-1].what == each.what and each.start - joined[-1].end < gap:
            joined[-1] = joined[-1]._replace(end=each.end)
        else:
            joined.append(each)
    return [Piece(each.what, 1e3 * each.start, 1e3 * each.end) for each in joined]
