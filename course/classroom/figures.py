"""Draw what a notebook found: plain values in, labelled matplotlib axes out.

`picture` shows a photograph and `pictures` several, `tiles` many small filters, `curves` lines and
measured points, `agreement` what was predicted and what was found, `histograms` how values spread,
`bars` one number each, `valley` a loss over two weights and the walks down it, `timeline` what the
ranks of a run did and when. A title is the answer in words; each axis is named with its unit.
"""

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np

# Okabe and Ito's colours: apart for every kind of colour vision; in grey print some are alike.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
WIDTH, HEIGHT = 6.4, 3.8
CHARACTERS_PER_INCH = 15


def picture(image, title, axes=None):
    """A photograph [height, width] in grey, 0 black to 1 white; returns its axes."""
    axes = axes or panels(1, height=4.4)[0]
    axes.imshow(np.asarray(image), cmap="gray", vmin=0, vmax=1)
    return named(axes, title, "column (pixels)", "row (pixels)")


def pictures(images, title, *, columns=6, width=9.6, vmin=None, vmax=None):
    """Images {label: [height, width]} in grey, in rows of `columns`; returns the figure's axes.

    Without `vmin` and `vmax` each picture runs from its own darkest to its own lightest value.
    """
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    steepest = max(len(image) / len(image[0]) for image in images.values())
    height = 0.4 + rows * (0.28 + width / columns * steepest)
    looks = {"figsize": (width, height), "layout": "constrained", "squeeze": False}
    figure, grid = plt.subplots(rows, columns, **looks)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (label, image) in zip(grid.flat, images.items(), strict=False):
        axes.imshow(np.asarray(image), cmap="gray", vmin=vmin, vmax=vmax)
        axes.set_title(label, fontsize=9)
    characters = int(width * CHARACTERS_PER_INCH)
    figure.suptitle(textwrap.fill(title, characters), x=0.01, ha="left", fontsize=11)
    return list(grid.flat)


def tiles(filters, title, *, columns=None, axes=None):
    """Filters [count, height, width] as a mosaic in reading order; returns the axes.

    Grey is 0 in all of them; each is scaled by its own largest value, so sizes do not compare.
    """
    filters = np.asarray(filters)
    count, height, width = filters.shape
    columns = columns or int(np.ceil(np.sqrt(1.6 * count)))
    rows = -(-count // columns)
    mosaic = np.ones((rows * (height + 1) - 1, columns * (width + 1) - 1))  # white between them
    largest = np.maximum(np.abs(filters).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    for place, tile in enumerate(filters / largest):
        top, left = place // columns * (height + 1), place % columns * (width + 1)
        mosaic[top : top + height, left : left + width] = tile
    axes = axes or panels(1, width=7, height=0.6 + 7 * mosaic.shape[0] / mosaic.shape[1])[0]
    axes.imshow(mosaic, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
    named(axes, title, "", "").set_axis_off()
    return axes


def histograms(samples, title, x, *, bins=60, log="", axes=None):
    """How the values of each of `samples` {label: values} spread, as shares; returns the axes."""
    axes = axes or panels(1)[0]
    samples = {label: np.asarray(values).ravel() for label, values in samples.items()}
    edges = np.histogram_bin_edges(np.concatenate(list(samples.values())), bins)
    for (label, values), colour in zip(samples.items(), COLOURS, strict=False):
        shares = np.histogram(values, edges)[0] / len(values)
        axes.stairs(shares, edges, label=label, color=colour, fill=True, alpha=0.35)
        axes.stairs(shares, edges, color=colour)
    axes.set_yscale("log" if "y" in log else "linear")
    return legend(named(axes, title, x, f"share of values in a bin of {edges[1] - edges[0]:.2g}"))


def bars(values, title, x, *, number=".3g", marks=None, axes=None):
    """One bar for each of `values` {label: number or [number, low, high]}, `marks` {label: x} as
    upright lines; the number stands at the bar's end, in the format `number`.  Returns the axes.
    """
    axes = axes or panels(1, height=1.2 + 0.34 * len(values))[0]
    marked = iter(COLOURS[1:])
    for row, value in enumerate(values.values()):
        middle, low, high = value if isinstance(value, Sequence) else (value,) * 3
        axes.barh(row, middle, 0.62, color=COLOURS[4])
        axes.plot([low, high], [row, row], color="0.2", linewidth=1.5)
        told = axes.text(max(middle, high), row, f" {middle:{number}}", va="center", fontsize=9)
        told.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0})  # hides the marks
    for label, at in (marks or {}).items():
        axes.axvline(at, label=label, color=next(marked), linestyle="--", linewidth=1)
    axes.set_yticks(range(len(values)), list(values))
    axes.margins(x=0.12)
    named(axes, title, x, "").invert_yaxis()
    return legend(axes)


def curves(lines, title, x, y, *, points=None, marks=None, log="", axes=None):
    """Curves {label: (xs, ys)}, measured `points` likewise, `marks` {label: x} as upright lines.

    `log` names the axes with a logarithmic scale: "x", "y" or "xy". Returns the axes.
    """
    axes = axes or panels(1)[0]
    colours = iter(COLOURS * 3)
    for label, (xs, ys) in lines.items():
        axes.plot(xs, ys, label=label, color=next(colours))
    for label, (xs, ys) in (points or {}).items():
        axes.plot(xs, ys, "o-", label=label, color=next(colours), ms=4, lw=0.6)
    for label, at in (marks or {}).items():
        axes.axvline(at, label=label, color="0.4", linestyle="--", linewidth=1)
    for scale, each in ((axes.set_xscale, "x"), (axes.set_yscale, "y")):
        scale("log" if each in log else "linear")
    return legend(named(axes, title, x, y))


def agreement(predicted, found, title, x, y, *, how, log="xy", marks=None, axes=None):
    """Curves {name: (xs, ys)} as predicted, and as dots in the same colours what was found, `how`
    says in which way ("measured", "simulated"); `marks` as for `curves`.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4, height=4.6)[0]
    curves(predicted, title, x, y, marks=marks, log=log, axes=axes)
    colours = dict(zip(predicted, COLOURS, strict=False))
    for name, (xs, ys) in found.items():
        axes.plot(xs, ys, "o", color=colours[name], ms=5)
    axes.plot([], [], "-", color="0.4", label="predicted")
    axes.plot([], [], "o", color="0.4", label=how)
    return legend(axes)


def valley(loss, across, up, paths, title, x, y, axes=None):
    """Level lines of `loss` [up, across] over two weights, and {label: walk [steps + 1, 2]}.

    Walks leave the picture where they leave the range of `across` and `up`. Returns the axes.
    """
    axes = axes or panels(1, height=4.6)[0]
    loss = np.asarray(loss)
    levels = loss.min() + np.ptp(loss) * np.linspace(0, 1, 13)[1:] ** 2  # even steps on a bowl
    lines = axes.contour(across, up, loss, levels, colors="0.65", linewidths=0.8)
    axes.clabel(lines, lines.levels[1::2], fmt="%.2g", fontsize=8)
    for (label, path), colour in zip(paths.items(), COLOURS, strict=False):
        axes.plot(*np.asarray(path).T, "o-", label=label, color=colour, ms=3, linewidth=1)
    axes.set(xlim=(min(across), max(across)), ylim=(min(up), max(up)))
    return legend(named(axes, title, x, y))


def timeline(events, messages, title, axes=None):
    """A row for each rank of a trace, a bar for each of its sends and receives, from when it began
    to wait until it went on, grey where it did its own work, and an arrow for each message.
    Returns the axes.
    """
    ranks, begin = 1 + max(event.rank for event in events), min(event.start for event in events)
    axes = axes or panels(1, height=1.2 + 0.45 * ranks)[0]
    ends = [max(e.end for e in events if e.rank == rank) - begin for rank in range(ranks)]
    axes.barh(range(ranks), ends, 0.5, label="its own work", color="0.85")
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
    looks = {"figsize": (width * count, height), "layout": "constrained", "squeeze": False}
    _, axes = plt.subplots(1, count, **looks)
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
