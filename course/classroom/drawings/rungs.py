"""Draw successive halving: the loss of each candidate after each rung in which it took part."""

import itertools

from course.classroom.drawings import lines
from course.classroom.figures import panels


def draw(found, plan, names, title, *, top):
    """The `rungs` of a `Halving` by its `plan`: a line for each candidate, named by `names`, which
    ends at the rung after which the candidate was dropped; between upright lines the steps of a
    rung, and how many took part.  Those that were never below a loss of `top` are listed.  Returns
    the axes."""
    ends = list(itertools.accumulate(rung.steps for rung in plan))
    paths = {name: ([], []) for name in names}
    for end, trials in zip(ends, found.rungs):
        for trial in trials:
            if trial.loss < top:
                steps, losses = paths[names[trial.candidate]]
                steps.append(end)
                losses.append(trial.loss)
    shown = {name: path for name, path in paths.items() if path[0]}
    axes = panels(1, width=7.4)[0]
    axes.set_xlim(0, 1.02 * ends[-1])
    labels = "steps of a candidate", "loss (validation)"
    seen = [loss for _, losses in shown.values() for loss in losses]
    limits = min(seen) / 1.3, 4 * max(seen)  # with room for words at the top
    lines.draw(shown, title, *labels, dots=shown, log="y", limits=limits, axes=axes)
    _mark(axes, plan, ends)
    if failed := [name for name in names if name not in shown]:
        told = f"a loss above {top:g}, or none: {', '.join(failed)}"
        axes.text(0.97, 0.86, told, transform=axes.transAxes, ha="right", va="top", fontsize=9)
    return axes


def _mark(axes, plan, ends):
    """An upright line at the end of each rung, and before it how many took part."""
    for rung, end in zip(plan, ends):
        axes.axvline(end, color="0.4", linestyle=(0, (1, 2)), linewidth=1.3)
        text, place = f"{rung.candidates} candidates", (end - rung.steps / 2, 0.97)
        looks = {"ha": "center", "va": "top", "fontsize": 8, "color": "0.3"}
        axes.text(*place, text, transform=axes.get_xaxis_transform(), **looks)
