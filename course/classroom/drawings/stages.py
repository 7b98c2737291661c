"""Draw a network of untied stages to scale: every cell is one number, and all have one size."""

from typing import NamedTuple

from matplotlib.patches import Rectangle

from course.classroom.figures import COLOURS, named, panels
from course.learning.nine_layers.plan import inputs_of_stages, sizes

GAP, PITCH = 1, 15  # cells between two maps of a layer, and from the end of a layer to the next
INCH = 0.088  # of a cell
LAYERS, WINDOWS = COLOURS[4], COLOURS[1]


class Layer(NamedTuple):
    """A layer as it is drawn: its maps, their side, the window by which the next one reads it."""

    name: str
    maps: int
    side: int
    window: int  # 0 for the last
    all_maps: bool  # whether the next layer reads all maps or only its own
    pixels: int  # along a side of the frame that a number of this layer depends on


def layers(plan) -> list[Layer]:
    """The frame, and the filters and pools of each stage of a Plan, as they are drawn."""
    pixels, step, drawn = 1, 1, []
    for number, ((stage, channels, side), size) in enumerate(
        zip(inputs_of_stages(plan), sizes(plan), strict=True), 1
    ):
        name = f"pool {number - 1}" if drawn else "frame"
        drawn.append(Layer(name, channels, side, stage.field, True, pixels))
        pixels, step = pixels + (stage.field - 1) * step, step * stage.stride
        name = f"filter {number}"
        drawn.append(Layer(name, stage.maps, size.simple_side, stage.pool, False, pixels))
        pixels, step = pixels + (stage.pool - 1) * step, step * stage.pool_stride
    last = Layer(f"pool {len(plan.stages)}", stage.maps, size.pooled_side, 0, False, pixels)
    return [*drawn, last]


def draw(plan, title, axes=None):
    """The layers of a Plan from left to right, each map a grid of as many cells as it has numbers.

    An orange window is what the orange cell on its right reads.  Returns the axes.
    """
    shown = layers(plan)
    width = sum(layer.side + PITCH for layer in shown)
    height = max(_height(layer) for layer in shown)
    axes = axes or panels(1, width=INCH * (width + 4), height=INCH * (height + 19) + 0.4)[0]
    left, before = 0, None
    for number, layer in enumerate(shown):
        tops = [(height - _height(layer)) / 2 + k * (layer.side + GAP) for k in range(layer.maps)]
        _maps(axes, layer, left, tops, height)
        if number:
            _read(axes, shown[number - 1], before, (left, tops[0]))
        before, left = (left, tops), left + layer.side + PITCH
    axes.set(xlim=(-4, width - PITCH + 8), ylim=(height + 9, -10), aspect="equal")
    named(axes, title, "", "").set_axis_off()
    return axes


def _height(layer):
    return layer.maps * (layer.side + GAP) - GAP


def _maps(axes, layer, left, tops, height):
    """The maps of one layer, one below the other, with words above and below them."""
    for top in tops:
        for k in range(layer.side + 1):
            looks = {"color": LAYERS, "lw": 0.35}
            axes.plot([left, left + layer.side], [top + k, top + k], **looks)
            axes.plot([left + k, left + k], [top, top + layer.side], **looks)
    middle, words = left + layer.side / 2, {"ha": "center", "fontsize": 9}
    size = f"{layer.side} × {layer.side}"
    count = f"{layer.maps} maps of\n{size}" if layer.maps > 1 else size
    axes.text(middle, -1.5, f"{layer.name}\n{count}", va="bottom", **words)
    pixels = f"each sees\n{layer.pixels} × {layer.pixels}" if layer.pixels > 1 else "pixels"
    axes.text(middle, height + 2, pixels, va="top", color="0.35", **words)


def _read(axes, layer, before, cell):
    """The window in `layer` that one cell of the next one reads, that cell, and two lines."""
    left, tops = before
    looks = {"facecolor": WINDOWS, "alpha": 0.3, "edgecolor": WINDOWS}
    for top in tops if layer.all_maps else tops[:1]:
        axes.add_patch(Rectangle((left, top), layer.window, layer.window, **looks))
    axes.add_patch(Rectangle(cell, 1, 1, facecolor=WINDOWS, zorder=3))
    ends = tops[0], (tops[-1] if layer.all_maps else tops[0]) + layer.window
    for end, side in zip(ends, (cell[1], cell[1] + 1), strict=True):
        axes.plot([left + layer.window, cell[0]], [end, side], color=WINDOWS, lw=0.8)
