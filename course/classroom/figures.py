"""Draw what a notebook found: plain values in, labelled matplotlib axes out.

`picture` shows a photograph, `curves` lines and measured points, `valley` a loss over two weights
and the walks down it, `timeline` what the ranks of a run did and when. A title is the answer in
words; each axis is named with its unit.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np

# Okabe and Ito's colours: apart for every kind of colour vision, and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
WIDTH, HEIGHT = 6.4, 3.8
CHARACTERS_PER_INCH = 15


def picture(image, title, axes=None):
    """A photograph [height, width] in grey, 0 black to 1 white; returns its axes."""
    axes = axes or panels(1, height=4.4)[0]
    axes.imshow(np.asarray(image), cmap="gray", vmin=0, vmax=1)
    return named(axes, title, "column (pixels)", "row (pixels)")


def curves(lines, title, x, y, *, points=None, marks=None, log="", axes=None):
    """Curves {label: (xs, ys)}, measured `points` likewise, `marks` {label: x} as upright lines.

    `log` names the axes with a logarithmic scale: "x", "y" or "xy". Returns the axes.
    """
    axes = axes or panels(1)[0]
    colours = iter(COLOURS * 3)
    for label, (xs, ys) in lines.items():
        axes.plot(np.asarray(xs), np.asarray(ys), label=label, color=next(colours))
    for label, (xs, ys) in (points or {}).items():
        axes.plot(
            np.asarray(xs), np.asarray(ys), "o-", label=label, color=next(colours), ms=4, lw=0.6
        )
    for label, at in (marks or {}).items():
        axes.axvline(at, label=label, color="0.4", linestyle="--", linewidth=1)
    for scale, each in ((axes.set_xscale, "x"), (axes.set_yscale, "y")):
        scale("log" if each in log else "linear")
    return legend(named(axes, title, x, y))


def valley(loss, across, up, paths, title, x, y, axes=None):
    """Level lines of `loss` [up, across] over two weights, and {label: walk [steps + 1, 2]}.

    Walks leave the picture where they leave the range of `across` and `up`. Returns the axes.
    """
    axes = axes or panels(1, height=4.6)[0]
    loss = np.asarray(loss)
    levels = loss.min() + np.ptp(loss) * np.linspace(0, 1, 13)[1:] ** 2  # even steps on a bowl
    lines = axes.contour(
        np.asarray(across), np.asarray(up), loss, levels, colors="0.65", linewidths=0.8
    )
    axes.clabel(lines, lines.levels[1::2], fmt="%.2g", fontsize=8)
    for (label, path), colour in zip(paths.items(), COLOURS, strict=False):
        axes.plot(*np.asarray(path).T, "o-", label=label, color=colour, ms=3, linewidth=1)
    axes.set(xlim=(min(across), max(across)), ylim=(min(up), max(up)))
    return legend(named(axes, title, x, y))


def timeline(events, messages, title, axes=None):
    """A row for each rank of a trace, a bar for each of its sends and receives, from when it began
    to wait until it went on, and an arrow for each message. Returns the axes.
    """
    ranks, begin = 1 + max(event.rank for event in events), min(event.start for event in events)
    axes = axes or panels(1, height=1.2 + 0.45 * ranks)[0]
    for operation, colour in zip(("send", "recv"), COLOURS, strict=False):
        shown = [event for event in events if event.operation == operation]
        starts, lengths = zip(*[(e.start - begin, e.end - e.start) for e in shown], strict=True)
        rows = [event.rank for event in shown]
        axes.barh(rows, lengths, 0.5, starts, label=f"in {operation}", color=colour, ec="white")
    for message in messages:
        ends = (message.end - begin, message.dst), (message.start - begin, message.src)
        axes.annotate("", *ends, arrowprops={"arrowstyle": "->"})
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    named(axes, title, "time since the first of them began (s)", "").invert_yaxis()
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def panels(count, width=WIDTH, height=HEIGHT):
    """`count` axes side by side in one new figure, each `width` x `height` inches."""
    _, axes = plt.subplots(
        1, count, figsize=(width * count, height), layout="constrained", squeeze=False
    )
    return list(axes[0])


def named(axes, title, x, y):
    """The axes with a title (wrapped to their width) and the names of both axes."""
    width = axes.get_position().width * axes.figure.get_figwidth()
    wrapped = textwrap.fill(title, max(20, int(width * CHARACTERS_PER_INCH)))
    axes.set_title(wrapped, loc="left", fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    return axes


def legend(axes):
    """The axes with a legend, where anything on them has a label."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=9, framealpha=0.9, edgecolor="none")
    return axes
