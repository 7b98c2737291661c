"""Draw losses over the epochs of a training, told apart without colour, each named at its end."""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

LOOKS = (("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"))  # dashes and markers, line by line
MARKERS = 12  # on each line
APART = 13  # points between two names
UNIT = "loss (mean cross-entropy, nats)"


def draw(losses, title, *, lowest=None, limits=None, axes=None):
    """A line for each of `losses` {name: [epochs + 1]} on a logarithmic axis, a ring round the
    smallest value of the line called `lowest`.  Returns the axes.

    What is not finite, or above the upper one of `limits`, leaves the picture.
    """
    axes, ends = axes or panels(1, width=7.2, height=4.0)[0], []
    for (name, line), colour, (dash, marker) in zip(losses.items(), COLOURS, LOOKS, strict=False):
        line = np.asarray(line, dtype=float)
        every = max(1, len(line) // MARKERS)
        axes.plot(line, dash, marker=marker, markevery=every, ms=4.5, color=colour)
        low, high = limits or (0, np.inf)
        seen = np.flatnonzero(np.isfinite(line) & (low <= line) & (line <= high))
        ends += [(line[k], k, name, colour) for k in seen[-1:]]
        if name == lowest:
            best = int(np.nanargmin(line))
            axes.plot(best, line[best], "o", ms=13, mfc="none", mec="0.2", mew=1.5)
    last = len(line) - 1
    axes.set(yscale="log", xlim=(0, 1.28 * last), ylim=limits)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= last])
    axes.spines[["top", "right"]].set_visible(False)
    _name(axes, sorted(ends))
    return named(axes, title, "epoch", UNIT)


def _name(axes, ends):
    """Write each name at its line's end (loss, epoch, name, colour), the lowest first, and above
    the one before where they would touch.
    """
    below = -np.inf
    for loss, epoch, name, colour in ends:
        height = axes.transData.transform((epoch, loss))[1] * 72 / axes.figure.dpi
        up = max(0.0, below + APART - height)
        place = {"xytext": (6, up), "textcoords": "offset points"}
        axes.annotate(name, (epoch, loss), color=colour, va="center", **place)
        below = height + up
