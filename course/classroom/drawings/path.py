"""Draw what a stage does to a few numbers, step by step: the path from pixels to a neuron."""

from matplotlib.patches import Rectangle

from course.classroom.drawings.network import shown
from course.classroom.figures import COLOURS, named, panels

APART, SIDE = 2.6, 0.8  # from step to step, of a box; units of one step are 1 apart
ROW_APART = 0.9  # between two rows of boxes
STAGE = {"pixels": 0, "match\n(filter)": 2, "rectify\n(square)": 1, "pool\n(root of sum)": 2,
         "normalise": 3}  # fmt: skip


def draw(rows, title, *, steps=STAGE, axes=None):
    """Rows {label: numbers of each step}, one box a number, steps from left to right.

    `steps` {name: inputs}, of a stage if not given, says how many neighbouring numbers of the step
    before each box reads: 0 for the first.  Numbers below 0 are tinted.  Returns the axes.
    """
    tallest = max(len(step) for step in next(iter(rows.values())))
    height = tallest + ROW_APART
    axes = axes or panels(1, width=1.9 * len(steps), height=0.7 + 0.42 * height * len(rows))[0]
    for number, (label, layers) in enumerate(rows.items()):
        at = [_places(step, len(layer), -number * height) for step, layer in enumerate(layers)]
        for reads, before, behind in zip(list(steps.values())[1:], at[:-1], at[1:], strict=True):
            _lines(axes, reads, before, behind)
        for layer, places in zip(layers, at, strict=True):
            _boxes(axes, layer, places)
        axes.text(-1.0, -number * height, label, ha="right", va="center", fontsize=10)
    for step, name in enumerate(steps):
        axes.text(APART * step, tallest / 2 + 0.35, name, ha="center", va="bottom", fontsize=10)
    bottom = -height * (len(rows) - 1) - tallest / 2 - 0.2
    axes.set(xlim=(-4.2, APART * (len(steps) - 1) + 1), ylim=(bottom, tallest / 2 + 1.7))
    named(axes, title, "", "").set_axis_off()
    return axes


def _places(step, count, middle):
    return [(APART * step, middle + (count - 1) / 2 - unit) for unit in range(count)]


def _lines(axes, reads, before, behind):
    """From each box to those that read it: box k reads `reads` neighbours, from number k on."""
    for first, (right, up) in enumerate(behind):
        for left, low in before[first : first + reads] if reads < len(before) else before:
            ends = [left + SIDE / 2, right - SIDE / 2], [low, up]
            axes.plot(*ends, color="0.6", lw=1, zorder=1)


def _boxes(axes, numbers, places):
    for number, (x, y) in zip(numbers, places, strict=True):
        ground = "#F8DDCB" if number < 0 else "#EEF4F8"
        corner = x - SIDE / 2, y - SIDE / 2
        looks = {"facecolor": ground, "edgecolor": COLOURS[1] if number < 0 else "0.4"}
        axes.add_patch(Rectangle(corner, SIDE, SIDE, zorder=2, **looks))
        axes.text(x, y, shown(number), ha="center", va="center", fontsize=10, zorder=3)
