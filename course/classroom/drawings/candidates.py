"""Draw how often the best of each group of candidates is right, beside always saying no."""

from course.classroom import figures


def draw(scores, titles, baselines):
    """A panel for each of `scores`, {name: (mean, lowest, highest)} in per cent; returns the axes.

    The best stands at the bottom: rows have the order of the last panel's means where they have its
    names, and of their own means else.  A dashed line marks the baseline of each panel.
    """
    order = sorted(scores[-1], key=lambda name: scores[-1][name][0])
    panels = figures.panels(len(scores), width=6, height=1.2 + 0.34 * max(map(len, scores)))
    for axes, rows, title, baseline in zip(panels, scores, titles, baselines, strict=True):
        names = order if set(order) == set(rows) else sorted(rows, key=lambda name: rows[name][0])
        figures.bars({name: rows[name] for name in names}, title, "", number=".1f", axes=axes)
        axes.axvline(baseline, color="0.4", linestyle="--", linewidth=1)
        axes.set(xlabel="right (%): mean, lowest to highest; dashed: always «no»", xlim=(0, 100))
    return panels
