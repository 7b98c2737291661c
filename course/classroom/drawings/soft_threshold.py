"""Draw why a price on coefficients makes some of them exactly 0: the soft threshold of one number,
and two coefficients whose best pair lies on a corner of the diamond of equal price.
"""

import numpy as np

from course.classroom.figures import COLOURS, named, panels


def draw(threshold, examples, title, *, axes=None):
    """The soft threshold as a function, with a dot and both its numbers for each of `examples`; the
    flat part and the diagonal are named.  Returns the axes.
    """
    axes = axes or panels(1, width=5, height=4.4)[0]
    v = np.linspace(-1, 1, 601) * max(3 * threshold, 1.15 * np.abs(examples).max())
    axes.plot(v, v, "--", color="0.6", linewidth=1.2)
    axes.plot(v, shrunk(v, threshold), color=COLOURS[0], linewidth=2)
    axes.axvspan(-threshold, threshold, color="0.93", zorder=0)
    axes.annotate("z = v", (v[-1], v[-1]), (-6, -2), textcoords="offset points", color="0.4",
                  ha="right", fontsize=9)  # fmt: skip
    axes.annotate("−t to t: exactly 0", (0, v[0]), (0, 6), textcoords="offset points", ha="center",
                  fontsize=9, color="0.3")  # fmt: skip
    for value in examples:
        z = float(shrunk(value, threshold))
        axes.plot(value, z, "o", color=COLOURS[1], ms=6)
        text = f"{value:g} → {z:g}".replace("-", "−")
        axes.annotate(text, (value, z), (8, -12), textcoords="offset points", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return named(axes, title, "v, before", "z, after the soft threshold")


def diamond(atoms, patch, best, title, *, axes=None):
    """For two `atoms` [2, pixels] of a `patch` [pixels]: level lines of half the squared residual
    over both coefficients, its minimum (a cross), and `best` [2] with the diamond of all pairs
    that have the same L1 norm.  Returns the axes.
    """
    axes = axes or panels(1, width=5, height=4.4)[0]
    atoms, patch, best = (np.asarray(each) for each in (atoms, patch, best))
    exact, *_ = np.linalg.lstsq(atoms.T, patch, rcond=None)
    price, reach = np.abs(best).sum(), 1.35 * max(np.abs(exact).max(), np.abs(best).max())
    ticks = np.linspace(-reach, reach, 201)
    codes = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    squared = np.square(patch - codes @ atoms).sum(axis=-1) / 2
    here = np.square(patch - best @ atoms).sum() / 2
    levels = sorted({here, *(here * np.array([0.25, 4.0, 9.0, 16.0]))})
    axes.contour(ticks, ticks, squared, levels, colors="0.6", linewidths=0.9)
    corners = price * np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]])
    axes.fill(*corners.T, color=COLOURS[4], alpha=0.25)
    axes.plot(*corners.T, color=COLOURS[0], linewidth=1.5)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axes.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    for point, marker, name, beside in (
        (exact, "x", "least residual", (-30, 10)),
        (best, "o", "best code", (-6, -16)),
    ):
        axes.plot(*point, marker, color=COLOURS[1], ms=8, mew=2)
        axes.annotate(name, point, beside, textcoords="offset points", fontsize=9)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    return named(axes, title, "first coefficient", "second coefficient")


def shrunk(v, threshold):
    """v moved towards 0 by the threshold, and not past it."""
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0)
