"""Draw a training whose validation loss rises again after its lowest value."""

from course.classroom.drawings import lines


def draw(losses, run, x, y, axes=None):
    """The `losses` {"training": (xs, ys), "validation": (xs, ys)} of a `run`, the lowest validation
    loss as a dot; the title says by how much the last one is above it.  Returns the axes.
    """
    xs, ys = losses["validation"]
    lowest = min(ys)
    title = (
        f"{run}: the validation loss ends {ys[-1] / lowest - 1:.0%} above its lowest value (dot)"
    )
    dots = {"lowest": ([xs[ys.index(lowest)]], [lowest])}
    return lines.draw(losses, title, x, y, log="y", dots=dots, axes=axes)
