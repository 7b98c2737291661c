"""Draw a training whose validation loss rises again after its lowest value."""

from course.classroom.drawings import lines
from course.classroom.figures import panels


def draw(losses, run, x, y):
    """The `losses` {"training": (xs, ys), "validation": (xs, ys)} of a `run`, and beside them the
    validation loss near its lowest value (a mark); the title says how far above it the last one is.
    Returns the axes of both.
    """
    xs, ys = losses["validation"]
    lowest, (both, near) = min(ys), panels(2, width=5)
    rise = ys[-1] / lowest - 1
    looks = {"validation": 1, "lowest": 2}
    dots = {"lowest": ([xs[ys.index(lowest)]], [lowest])}
    lines.draw(losses, f"{run}: both losses", x, y, log="y", axes=both)
    title = f"The validation loss ends {rise:.0%} above its lowest value"
    limits = 0.95 * lowest, (1.25 + rise) * lowest
    alone = {"validation": losses["validation"]}
    lines.draw(alone, title, x, y, dots=dots, looks=looks, limits=limits, axes=near)
    return both, near
