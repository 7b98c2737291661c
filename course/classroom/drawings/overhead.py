"""Draw what a step costs by the size of its batch, beside the model fixed cost + cost per pixel."""

import numpy as np

from course.classroom.drawings import lines

BUSY = "This machine was too busy to show it: run the cell again"


def draw(sizes, took, axes=None):
    """Measured seconds a step `took` for batches of `sizes` pixels, the smallest first, and the
    model through both ends; the title says up to which batch the fixed cost prevails, or that the
    measurements contradict the model.  Returns the axes.
    """
    per_pixel = (took[-1] - took[0]) / (sizes[-1] - sizes[0])
    grid = np.geomspace(sizes[0], sizes[-1], 60)  # a sum bends between the sizes, too
    shown = {"fixed cost +\ncost per pixel": (grid, took[0] + per_pixel * (grid - sizes[0]))}
    shown |= {"cost per\npixel alone": (sizes, [took[-1] * size / sizes[-1] for size in sizes])}
    looks = {"dots": {"measured": (sizes, took)}, "log": "xy", "axes": axes}
    looks["limits"] = min(took) / 3, 3 * max(took)
    return lines.draw(shown, said(sizes, took), "batch (pixels)", "seconds a step", **looks)


def said(sizes, took) -> str:
    """Up to which batch most of a step is fixed cost, as a sentence, if the model holds so far."""
    per_pixel = (took[-1] - took[0]) / (sizes[-1] - sizes[0])
    short = [each for size, each in zip(sizes, took) if per_pixel * size < 0.1 * took[0]]
    if per_pixel <= 0 or max(short) > 2 * min(short):
        return BUSY
    batch = float(f"{took[0] / per_pixel:.1g}")
    return f"Up to a batch of about {batch:,.0f} most of a step is fixed cost"
