"""Draw how often the best of each group of candidates is right, beside always saying no."""

from course.classroom import figures


def draw(scores, titles, baseline):
    """A panel for each of `scores`, {name: (mean, lowest, highest)} in per cent; returns the axes.

    The best stands at the bottom: rows have the order of the last panel's means where they have its
    names, and their own order else.  A dashed line marks the `baseline`.
    """
    order = sorted(scores[-1], key=lambda name: scores[-1][name][0])
    height = 1.2 + 0.34 * max(map(len, scores))
    panels = figures.panels(len(scores), width=6, height=height)
    for axes, rows, title in zip(panels, scores, titles, strict=True):
        names = order if set(order) == set(rows) else list(rows)
        figures.bars({name: rows[name] for name in names}, title, "right (%)", axes=axes)
        axes.axvline(baseline, color="0.4", linestyle="--", linewidth=1)
        axes.set_xlabel("right (%): mean, lowest to highest; dashed: always «no»")
        axes.set_xlim(0, 100)
    return panels
