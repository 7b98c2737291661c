"""Draw two classes as dots and crosses at two features, and the line where a classifier changes
its answer.
"""

import numpy as np

from course.classroom.figures import COLOURS, named, panels


def draw(features, labels, model, title, x, y, *, names=("no face", "face"), axes=None):
    """`features` [count, 2] with `labels` [count] of 0 and 1: class 0 as rings, class 1 as crosses,
    `names` below the axes; where the score of `model`, a `Classifier`, is 0 a dashed line.  The
    picture is that of the dots, whatever the line does.  Returns the axes.
    """
    axes = axes or panels(1, width=5, height=4.4)[0]
    features, labels = np.asarray(features), np.asarray(labels)
    looks = {"facecolors": "none", "edgecolors": COLOURS[0], "marker": "o"}, {"marker": "x"}
    for kind, (name, look) in enumerate(zip(names, looks, strict=True)):
        look = look if kind == 0 else look | {"color": COLOURS[1]}
        axes.scatter(*features[labels == kind].T, s=16, linewidths=0.9, label=name, **look)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    slopes = np.asarray(model.weights / model.spread)
    through = np.asarray(model.mean) - (0, float(model.bias) / slopes[1])
    line = {"color": "0.2", "linestyle": "--", "linewidth": 1.5, "label": "score 0"}
    axes.axline(through, slope=-slopes[0] / slopes[1], **line)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3, "fontsize": 9}
    axes.legend(frameon=False, **below)
    axes.spines[["top", "right"]].set_visible(False)
    return named(axes, title, x, y)
