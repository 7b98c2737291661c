"""Draw which rows of which rank are shown to all, and in which round."""

from course.classroom.figures import COLOURS, named, panels


def draw(plans, title):
    """A panel for each of `plans` {scheme: rounds}, each round a list of (start, stop), the rows
    that a rank shows in it: a lane for each rank, on its rows the number of their round, from 1.
    Returns the axes.
    """
    ranks = max(len(shares) for plan in plans.values() for shares in plan)
    drawn = panels(len(plans), width=3.1, height=1.6 + 0.4 * ranks)
    for axes, (scheme, plan) in zip(drawn, plans.items(), strict=True):
        for number, shares in enumerate(plan, 1):
            for rank, (start, stop) in enumerate(shares):
                for row in range(start, stop):
                    _row(axes, rank, row, number)
        axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
        axes.set_ylim(ranks - 0.5, -0.5)
        count = f"{len(plan)} round{'s' * (len(plan) > 1)}"
        named(axes, f"({scheme}): {count}", "image of the rank", "")
    drawn[0].figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return drawn


def _row(axes, rank, row, number):
    axes.barh(rank, 1, 0.8, row, color=COLOURS[(number - 1) % len(COLOURS)], alpha=0.45, ec="white")
    axes.text(row + 0.5, rank, str(number), ha="center", va="center", fontsize=9)
