"""Draw what the size of a batch does: slopes and their noise, steps to a target, errors."""

import math

from course.classroom.figures import COLOURS, curves, named, panels

MARKERS, DASHES = "osD^vP", ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
NOISE = "#F3E3B5"


def slopes(targets, places, title):
    """The slopes of (w - target)^2 / 2 for each of `targets`, at each of the `places` of w.

    A dot is a sample, the bar their mean, the line one standard deviation to both sides of it.
    Returns the axes.
    """
    axes = panels(1, width=7.4, height=0.9 + 0.75 * len(places))[0]
    for row, w in enumerate(places):
        each = [w - target for target in targets]
        mean = sum(each) / len(each)
        noise = math.sqrt(sum((slope - mean) ** 2 for slope in each) / (len(each) - 1))
        axes.plot([mean - noise, mean + noise], [row, row], color=COLOURS[5], lw=5, alpha=0.6)
        axes.plot(each, [row] * len(each), "o", color=COLOURS[0], ms=6)
        axes.plot([mean, mean], [row - 0.28, row + 0.28], color=COLOURS[1], lw=3)
        axes.text(mean, row - 0.33, f"mean {mean:.3g}".replace("-", "−"), color=COLOURS[1],
                  ha="center", fontsize=9)  # fmt: skip
    axes.axvline(0, color="0.6", lw=0.8, zorder=0)
    axes.set_yticks(range(len(places)), [f"w = {w:g}" for w in places])
    named(axes, title, "slope of a sample's loss at w", "").set_ylim(len(places) - 0.5, -0.7)
    return axes


def knee(steps, fit, noise, title, axes=None):
    """Steps to a target {batch: [seeds]}, the fitted s(b) = least (1 + critical / b) of `fit`
    (least, critical), and the gradient's `noise` scale (first, mean, last) as a band and a line.

    Returns the axes.
    """
    axes = axes or panels(1, width=9.2, height=4.2)[0]
    sizes, (least, critical), (first, mean, last) = list(steps), fit, noise
    axes.axvspan(first, last, color=NOISE, zorder=0, label="noise scale:\nfrom start to target")
    axes.axvline(mean, color=COLOURS[5], lw=2, ls="-.", label=f"its mean on the way: {mean:.0f}")
    axes.axvline(critical, color=COLOURS[1], lw=2, ls=":", label=f"critical batch: {critical:.0f}")
    axes.plot(sizes, [least * critical / b for b in sizes], "--", color="0.45", lw=1,
              label="perfect scaling: half the\nsteps for twice the batch")  # fmt: skip
    axes.plot(sizes, [least * (1 + critical / b) for b in sizes], color=COLOURS[1], lw=1.5,
              label=f"fitted: {least:.1f} (1 + {critical:.0f} / b)")  # fmt: skip
    for number, (size, each) in enumerate(steps.items()):
        axes.plot([size] * len(each), each, "o", color=COLOURS[0], ms=4, alpha=0.5,
                  label=None if number else "measured, a dot for each seed")  # fmt: skip
    named(axes, title, "batch (images)", "steps to the target")
    _powers_of_two(axes, sizes)
    low, high = axes.set_ylim(least / 2, 2 * max(max(each) for each in steps.values()))
    ticks = [tick for tick in (2, 5, 10, 20, 50, 100, 200, 500, 1000) if low <= tick <= high]
    axes.set_yticks(ticks, ticks)
    axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def errors_by_batch(lines, title, axes=None, top=95):
    """The mean error in per cent of each of `lines` {name: {batch: [seeds]}}, and its seeds as dots
    beside one another; each line has a marker and a dash of its own, its name at its end.

    Returns the axes.
    """
    axes = axes or panels(1, width=7.6, height=4.4)[0]
    sizes = sorted({size for errors in lines.values() for size in errors})
    ends = []
    for number, (name, errors) in enumerate(lines.items()):
        colour, marker, shift = COLOURS[number], MARKERS[number], 1 + 0.05 * (number - 1)
        means = [sum(each) / len(each) for each in errors.values()]
        axes.plot(list(errors), means, color=colour, marker=marker, ls=DASHES[number], ms=6)
        for size, each in errors.items():
            axes.plot([size * shift] * len(each), each, marker, color=colour, ms=3, alpha=0.4)
        ends.append((means[-1], name, colour, max(errors)))
    _name_ends(axes, sorted(ends))
    named(axes, title, "batch (images)", "wrong on validation images (%)")
    _powers_of_two(axes, sizes)
    ticks = [tick for tick in (2, 3, 5, 10, 20, 40, 90) if tick <= top]
    axes.set_yticks(ticks, ticks)
    axes.set(xlim=(sizes[0] / 1.25, sizes[-1] * 1.35 * (sizes[-1] / sizes[0]) ** 0.24),
             ylim=(1.4, top * 1.15))  # fmt: skip
    return axes


def run(rates, losses, title):
    """The rate and the loss of every step of one run, side by side; returns both axes.

    The right title says whether it learns: whether the last loss is below half a nat.
    """
    left, right = panels(2, 3.25, 2.7)
    steps = range(len(rates))
    curves({"": (steps, rates)}, title, "step", "learning rate", axes=left)
    left.set_ylim(0, max(5.2, 1.05 * max(rates)))
    fate = "It learns" if losses[-1] < 0.5 else "It does not learn"
    curves({"": (steps, losses)}, fate, "step", "loss (nats)", log="y", axes=right)
    right.set(xlim=left.get_xlim(), ylim=(1e-3, 1e3))
    return left, right


def _name_ends(axes, ends):
    """Names beside the last points, lowest first, moved up where two would overlap."""
    lowest = 0.0
    for value, name, colour, size in ends:
        lowest = max(value, 1.22 * lowest)
        axes.text(size * 1.27, lowest, name, color=colour, va="center", fontsize=9)


def _powers_of_two(axes, sizes):
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
    return axes
