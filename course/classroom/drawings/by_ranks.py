"""Draw lines over the number of ranks: only the numbers that there are stand at the axis."""

from course.classroom.drawings import lines


def draw(curves, title, y, ranks, *, log="x", axes=None, **more):
    """As `lines.draw`, whose knobs the others are; `ranks` are those at the axis.  Returns the
    axes."""
    axes = lines.draw(curves, title, "ranks p", y, log=log, axes=axes, **more)
    axes.set_xticks(ranks, ranks)
    axes.minorticks_off()
    return axes
