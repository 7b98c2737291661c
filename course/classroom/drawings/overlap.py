"""Draw training steps whose messages travel while backward computes: what is hidden, what is not.

The moments of a step are seconds from its beginning: 0, when forward ends, when each layer's
gradient is there (last layer first), and when everything is over.
"""

import itertools

import matplotlib.pyplot as plt

from course.classroom.drawings import lines
from course.classroom.timeline import Piece, lanes

FORWARD, BACKWARD, SENDS = "forward", "backward, by layer", "all-reduce, by bucket"


def two_lanes(runs, title, how):
    """Two lanes for each of `runs` {label: (moments, sends)}, all on one axis of time: what rank 0
    computes, and beside that its all-reduces, of which `sends` has when each began and ended.
    Returns the axes."""
    rows = {}
    for label, (moments, sends) in runs.items():
        rows[f"{label}: computes"] = computed([1e3 * each for each in moments[1:-1]])
        rows[f"{label}: sends"] = [Piece(SENDS, 1e3 * begin, 1e3 * end, str(number))
                                   for number, (begin, end) in enumerate(sends, 1)]  # fmt: skip
    return lanes(rows, title, f"time (ms), {how}")


def computed(marks) -> list[Piece]:
    """The arithmetic of a step from 0 on: `marks` are the ends of forward and of each layer.

    Layers have no numbers: those of the buckets below are what is to be read."""
    backward = [Piece(BACKWARD, *span) for span in itertools.pairwise(marks)]
    return [Piece(FORWARD, 0.0, marks[0]), *backward]


def choice(marks, spans, sizes, totals, here, *, dots=None):
    """Above, one predicted step with `here` layers in a bucket: `marks` as for `computed`, `spans`
    when each all-reduce begins and ends.  Below, the `totals` of steps for all `sizes` of a bucket,
    and `dots` (sizes, totals) that were simulated.  All in ms.  Returns both axes.
    """
    looks = {"figsize": (6.6, 5.2), "height_ratios": (1, 1.7), "layout": "constrained"}
    _, (above, below) = plt.subplots(2, 1, **looks)
    sends = [Piece(SENDS, *span, str(n) * (len(spans) < 9)) for n, span in enumerate(spans, 1)]
    title = f"Layers in a bucket: {here}. The step takes {sends[-1].end:.1f} ms."
    lanes({"computes": computed(marks), "sends": sends}, title, "time (ms), predicted", above)
    _legend_below(above)
    curve = {"predicted": (sizes, totals)}
    marked = {"simulated": dots} if dots else {}
    said = f"The least of all choices: {min(totals):.1f} ms. Arithmetic alone: {marks[-1]:.1f} ms."
    names = "layers in a bucket", "step (ms)"
    lines.draw(curve, said, *names, dots=marked, limits=(0, 1.25 * max(totals)), axes=below)
    below.axhline(marks[-1], color="0.4", linestyle=(0, (1, 2)), linewidth=1.3)
    below.annotate("arithmetic alone", (sizes[0], marks[-1]), (0, -12),
                   textcoords="offset points", fontsize=9, color="0.3")  # fmt: skip
    below.plot([here], [totals[sizes.index(here)]], "o", ms=11, mfc="none", mec="black", mew=1.5)
    return above, below


def _legend_below(axes):
    """The legend of the lanes goes from beside them to the lower edge of the figure."""
    keys = axes.get_legend()
    names = [text.get_text() for text in keys.get_texts()]
    looks = {"ncols": len(names), "frameon": False, "fontsize": 9}
    axes.figure.legend(keys.legend_handles, names, loc="outside lower center", **looks)
    keys.remove()
