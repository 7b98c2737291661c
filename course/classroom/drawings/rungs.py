"""Draw successive halving: the loss of each candidate after each rung in which it took part."""

import itertools
import math

from course.classroom.drawings import lines


def draw(found, plan, names, title):
    """The `rungs` of a `Halving` by its `plan`: a line for each candidate, named by `names`, which
    ends at the rung after which the candidate was dropped; upright lines where rungs end.  Those
    without a finite loss are listed at the top.  Returns the axes."""
    ends = list(itertools.accumulate(rung.steps for rung in plan))
    paths = {name: ([], []) for name in names}
    for end, trials in zip(ends, found.rungs):
        for trial in trials:
            if math.isfinite(trial.loss):
                steps, losses = paths[names[trial.candidate]]
                steps.append(end)
                losses.append(trial.loss)
    shown = {name: path for name, path in paths.items() if path[0]}
    marks = {f"{rung.candidates} candidates": end for rung, end in zip(plan, ends)}
    labels = "steps of a candidate", "loss (validation)"
    axes = lines.draw(shown, title, *labels, dots=shown, marks=marks, log="y")
    if failed := [name for name in names if name not in shown]:
        told = f"no finite loss: {', '.join(failed)}"
        axes.text(0.99, 0.98, told, transform=axes.transAxes, ha="right", va="top", fontsize=9)
    return axes
