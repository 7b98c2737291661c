"""Move a slider and see the figure change: thin shells around functions that draw.

`sliders(draw, rate=slider("learning rate", 0, 5, 1))` calls `draw(rate=...)` at every move.
"""

import ipywidgets


def slider(label, low, high, start, step=None):
    """A slider named `label` over [low, high]; whole numbers in, whole numbers out.

    Raises ValueError where the start lies outside.
    """
    if not low <= start <= high:
        raise ValueError(f"slider {label!r} starts at {start}, outside [{low}, {high}]")
    whole = all(isinstance(each, int) for each in (low, high, start, step or 1))
    kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    return kind(
        start, min=low, max=high, step=step or (1 if whole else (high - low) / 100),
        description=label, style={"description_width": "10em"}, layout={"width": "36em"},
    )  # fmt: skip


def sliders(draw, **controls):
    """The controls, and below them what `draw(**values)` shows; drawn again at every move."""
    shown = ipywidgets.interactive_output(draw, controls)
    return ipywidgets.VBox([*controls.values(), shown])
