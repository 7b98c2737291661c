"""What a slider shows at some of its places, as one picture for readers without a kernel."""

import io

import matplotlib.pyplot as plt
import numpy as np

DPI = 100
PAGE = 1360  # pixels across that a page of JupyterLab has room for
FRAMES = 4
CAPTION = 30  # pixels above a frame


def moments(controls: dict) -> list[dict]:
    """Values of the first of the controls {name: widget}, evenly from end to end."""
    name, *_ = controls
    values = places(controls[name])
    chosen = np.linspace(0, len(values) - 1, min(FRAMES, len(values))).round().astype(int)
    return [{name: values[number]} for number in chosen]


def caption(controls: dict, moment: dict) -> str:
    """What the controls that a moment moves stand at, in words."""
    pairs = ((controls[name].description, written(value)) for name, value in moment.items())
    return ", ".join(map(": ".join, pairs))


def written(value) -> str:
    """A number without a power of ten where it is large: 16,000, 0.05; anything else as it is."""
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def places(control) -> list:
    """All values of a slider or a menu, in its order."""
    if hasattr(control, "options"):
        return list(getattr(control.options, "values", lambda: control.options)())
    steps = round((control.max - control.min) / control.step)
    return [control.min + control.step * step for step in range(steps + 1)]


def film_strip(draw, captions: dict):
    """A figure with a frame of `draw(**values)` for each of `captions` {text: values}.

    Frames keep their pixels: one that is scaled, if only by a hundredth, has broken letters.
    """
    frames = [frame(draw, **values) for values in captions.values()]
    high, wide = (max(each.shape[axis] for each in frames) for axis in (0, 1))
    columns = min(2, len(frames), max(1, PAGE // wide))
    size = np.array((columns * wide, -(-len(frames) // columns) * (high + CAPTION)))
    strip = plt.figure(figsize=size / DPI, dpi=DPI)
    for number, (picture, caption) in enumerate(zip(frames, captions, strict=True)):
        row, column = divmod(number, columns)
        tall, broad = picture.shape[:2]
        corner = column * wide, size[1] - row * (high + CAPTION) - CAPTION - tall
        axes = strip.add_axes((*(corner / size), *((broad, tall) / size)))
        axes.set_axis_off()
        axes.imshow(picture, interpolation="none", aspect="auto")
        axes.set_title(caption, fontsize=10, color="0.35", loc="left")
    return strip


def frame(draw, **values) -> np.ndarray:
    """What `draw(**values)` draws, as pixels [height, width, channels]; its figure is closed."""
    before = set(plt.get_fignums())
    draw(**values)
    (number,) = set(plt.get_fignums()) - before
    drawn, picture = plt.figure(number), io.BytesIO()
    drawn.savefig(picture, format="png", dpi=DPI, bbox_inches="tight")
    plt.close(drawn)
    picture.seek(0)
    return plt.imread(picture)
