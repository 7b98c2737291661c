"""Move a slider and see the figure change: thin shells around functions that draw.

`sliders(draw, rate=slider("learning rate", 0, 5, 1))` calls `draw(rate=...)` at every move.
"""

import ipywidgets
import matplotlib.pyplot as plt
from IPython.display import display

from course.classroom.film_strip import caption, film_strip, moments

LOOKS = {"style": {"description_width": "15em"}, "layout": {"width": "41em"}}  # of all controls
LONGEST = 26  # letters of a label that are seen in full


def slider(label, low, high, start, step=None):
    """A slider named `label` over [low, high]; whole numbers in, whole numbers out.

    Raises ValueError where the start lies outside, and for a label that would be cut.
    """
    if len(label) > LONGEST:
        raise ValueError(
            f"a label has at most {LONGEST} letters, not the {len(label)} of {label!r}"
        )
    if not low <= start <= high:
        raise ValueError(f"slider {label!r} starts at {start}, outside [{low}, {high}]")
    whole = all(isinstance(each, int) for each in (low, high, start, step or 1))
    kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    return kind(
        start, min=low, max=high, step=step or (1 if whole else (high - low) / 100),
        description=label, **LOOKS,
    )  # fmt: skip


def sliders(draw, *, film=(), **controls):
    """Show the controls, below them what `draw(**values)` draws, anew at every move, and a film
    strip of it, which readers without a kernel see, too: a frame for each moment {name: value} of
    `film`, the other controls as they start; without `film` the first control goes from end to end.
    """
    shown = ipywidgets.interactive_output(draw, controls)
    start = {name: control.value for name, control in controls.items()}
    frames = {caption(controls, each): start | each for each in film or moments(controls)}
    strip = film_strip(draw, frames)
    display(ipywidgets.VBox([*controls.values(), shown]), strip)
    plt.close(strip)
