"""Draw a row of numbers as the sum of its waves, one above the other."""

import matplotlib.pyplot as plt
import numpy as np

from course.classroom.figures import COLOURS


def draw(row, title):
    """The numbers of `row` [n], and below them the wave of each frequency, whose sum they are.

    Returns the axes, from top to bottom.
    """
    row, parts = np.asarray(row, dtype=float), waves(row)
    names = ["the row", *(f"frequency {k}" for k in range(len(parts)))]
    figure, grid = plt.subplots(len(names), 1, figsize=(6.4, 1.05 * len(names) + 0.6),
                                sharex=True, sharey=True, layout="constrained")  # fmt: skip
    fine = np.linspace(0, len(row) - 1, 201)
    for number, (axes, name) in enumerate(zip(grid, names, strict=True)):
        values = row if number == 0 else parts[number - 1](np.arange(len(row)))
        if number:
            axes.plot(fine, parts[number - 1](fine), color=COLOURS[0], lw=1.2)
        axes.axhline(0, color="0.6", lw=0.8)
        axes.vlines(range(len(row)), 0, values, color="0.6")
        axes.plot(range(len(row)), values, "o", color=COLOURS[0 if number else 1], ms=6)
        for place, value in enumerate(values):
            axes.annotate(f"{value + 0:.3g}".replace("-", "−"), (place, value), (7, 3),
                          textcoords="offset points", fontsize=9)  # fmt: skip
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    grid[-1].set_xticks(range(len(row)))
    grid[-1].set_xlabel("place in the row")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return list(grid)


def waves(row):
    """The wave of each frequency 0 ... n // 2, as functions of the place, whose sum is the row."""
    row = np.asarray(row, dtype=float)
    found = np.fft.rfft(row).round(12) / len(row)

    def wave(k):
        twice = 1 if k == 0 or 2 * k == len(row) else 2
        return lambda at: twice * (found[k] * np.exp(2j * np.pi * k * at / len(row))).real.round(9)

    return [wave(k) for k in range(len(found))]
