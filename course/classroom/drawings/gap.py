"""Draw an objective that falls and a lower bound that rises: the best value lies between them."""

import numpy as np

from course.classroom.figures import COLOURS, named, panels


def draw(objective, bound, at, title, *, limits=None, axes=None):
    """`objective` and the lower `bound` [steps] after each step, the range between them shaded;
    an arrow and its length mark the duality gap after step `at`.  Returns the axes.
    """
    axes = axes or panels(1, width=7.4, height=4)[0]
    objective, bound = np.asarray(objective), np.asarray(bound)
    steps = 1 + np.arange(len(objective))
    axes.fill_between(steps, bound, objective, color=COLOURS[4], alpha=0.2)
    for values, dashes, colour, name in (
        (objective, "-", COLOURS[0], "objective"),
        (bound, "--", COLOURS[1], "lower bound\n(dual value)"),
    ):
        axes.plot(steps, values, dashes, color=colour)
        side = 8 if name == "objective" else -8
        axes.annotate(name, (steps[-1], values[-1]), (6, side), textcoords="offset points",
                      color=colour, fontsize=9, va="center")  # fmt: skip
    top, low = objective[at - 1], bound[at - 1]
    axes.annotate("", (at, top), (at, low), arrowprops={"arrowstyle": "<->", "color": "0.2"})
    text, place = f"duality gap after\n{at} steps: {top - low:.2g}", (at, low + 0.75 * (top - low))
    axes.annotate(text, place, (8, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set(ylim=limits)
    axes.spines[["top", "right"]].set_visible(False)
    return named(axes, title, "step", "objective (no unit)")
