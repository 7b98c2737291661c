"""Draw the loss over two weights as a map: `directions` shows where its curvature is largest and
smallest, and the error of the start split along both; `walks` shows descents on it.

The loss is a bowl, lowest + (w - best) H (w - best) / 2, with the Hessian H [2, 2] and best [2].
"""

import numpy as np

from course.classroom.figures import COLOURS, named, panels

LOOKS = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))  # dashes and markers, walk by walk
ACROSS = (0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6)  # half of a valley
WINDOW = (-1.25, 1.15), (-0.3, 1.75)
WEIGHTS = "weight of the pixel to the left", "weight of the pixel above"
ARROWS = (("flat", 0.55, (-40, -30), COLOURS[2]), ("sharp", 0.5, (-30, 6), COLOURS[1]))


def directions(hessian, best, start, title, axes=None):
    """The map with both eigenvectors of the Hessian, named and with their curvatures, and the
    error of `start` split into a part along each.  Returns the axes.
    """
    axes = _map(hessian, best, start, axes)
    curvatures, ways = np.linalg.eigh(np.asarray(hessian))
    best, start = np.asarray(best), np.asarray(start)
    for curvature, way, (name, reach, beside, colour) in zip(curvatures, ways.T, ARROWS):
        tip = best + reach * way * np.sign(way[0])  # to the right
        looks = {"arrowstyle": "-|>", "color": colour, "lw": 2.4, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", tip, best, arrowprops=looks)
        _text(axes, f"{name} direction,\ncurvature {curvature:.3g}", tip, beside, color=colour)
    corner = best + ways[:, 0] * (ways[:, 0] @ (start - best))
    for name, one, other, beside in (
        ("flat", corner, best, (8, 4)),
        ("sharp", corner, start, (-96, 10)),
    ):
        axes.plot(*np.transpose((one, other)), "--", color="0.2", linewidth=1.5)
        text = f"{name} part\nof the error: {np.linalg.norm(other - one):.2f}"
        _text(axes, text, 0.7 * one + 0.3 * other, beside)
    return named(axes, title, *WEIGHTS)


def walks(hessian, best, start, paths, title, axes=None):
    """The map with the walks `paths` {name: [steps + 1, 2]}; a walk ends where it leaves the map,
    and its name below the map says after how many steps.  Returns the axes.
    """
    axes = _map(hessian, best, start, axes)
    for (name, path), colour, (dash, marker) in zip(paths.items(), COLOURS, LOOKS, strict=False):
        path = np.asarray(path)
        outside = np.flatnonzero(~_inside(path))
        if len(outside):
            name = f"{name} leaves the map at step {outside[0]}".strip()
            path = path[: outside[0] + 1]
        axes.plot(*path.T, dash, marker=marker, color=colour, ms=3, lw=1.1, label=name)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(-0.02, -0.13), fontsize=9)
    return named(axes, title, *WEIGHTS)


def _map(hessian, best, start, axes):
    """Level lines to scale, so that directions at right angles look it; start and best marked."""
    axes = axes or panels(1, width=6.4, height=5.6)[0]
    hessian, best = np.asarray(hessian), np.asarray(best)
    x, y = np.meshgrid(np.linspace(*WINDOW[0], 201), np.linspace(*WINDOW[1], 201))
    away = np.stack([x - best[0], y - best[1]], axis=-1)
    height = np.einsum("...i,ij,...j", away, hessian, away) / 2
    levels = np.linalg.eigvalsh(hessian)[-1] * np.square(ACROSS) / 2
    axes.contour(x, y, height, levels, colors="0.72", linewidths=0.8)
    axes.plot(*start, "o", ms=11, mfc="none", mec="0.1", mew=1.6, zorder=4)
    axes.plot(*best, "*", ms=14, color="0.1", zorder=4)
    _text(axes, "start", start, (0, 9), ha="center")
    _text(axes, "minimum", best, (9, -4))
    axes.set(xlim=WINDOW[0], ylim=WINDOW[1], aspect="equal")
    return axes


def _text(axes, text, place, beside, **looks):
    looks = {"fontsize": 9, "bbox": {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 0.6}} | looks
    axes.annotate(text, place, beside, textcoords="offset points", zorder=5, **looks)


def _inside(path):
    (left, right), (low, high) = WINDOW
    x, y = path.T
    return (left <= x) & (x <= right) & (low <= y) & (y <= high)
