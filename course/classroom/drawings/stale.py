"""Draw what stale gradients do: the walk down a bowl, and losses of several seeds by learning rate,
by updates and by seconds."""

import numpy as np

from course.classroom.figures import COLOURS, curves, named, panels

LOOKS = [*zip(COLOURS, ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1))), "osD^v", strict=False)]
UPDATES = 120


def walk(staleness, rate, updates=UPDATES) -> list[float]:
    """The weights [updates + 1] of a walk down w²/2 from 1, each step by the slope at the weight
    of so many updates ago (of the start, as long as there is none)."""
    w = [1.0]
    for t in range(updates):
        w.append(w[t] - rate * w[max(0, t - staleness)])
    return w


def arrives(w) -> bool:
    """Whether a walk swings less in its last third than in the one before."""
    third = len(w) // 3
    last, before = (max(map(abs, part)) for part in (w[-third:], w[-2 * third : -third]))
    return last < before or last < 1e-9


def stale_walk(s, r):
    """The walk with gradients `s` versions old at `r`, rate times curvature.  Returns the axes."""
    w = walk(s, r)
    fate = "the walk arrives" if arrives(w) else "the walk does not arrive"
    title = f"Gradients {s} versions old, rate · curvature {r:.2f}: {fate}"
    axes = panels(1, 6.4, 3.0)[0]
    axes.plot(w, color=COLOURS[0])
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.plot(0, 1, "o", color=COLOURS[1])
    axes.annotate("start", (0, 1), (4, 6), textcoords="offset points", fontsize=9)
    axes.set(ylim=(-3, 3), xlim=(-2, UPDATES))
    return named(axes, title, "update", "weight (minimum at 0)")


def limits(limit, tried, title, most=15):
    """The function `limit` (of a staleness) and the guess 2 / (s + 1) as lines, and what was
    `tried`, {(staleness, rate times curvature): whether it arrived}.  Returns the axes."""
    ages = range(most + 1)
    lines = {"limit by the formula": (ages, [limit(s) for s in ages]),
             "guess: 2 / (s + 1)": (ages, [2 / (s + 1) for s in ages])}  # fmt: skip
    axes = curves(lines, title, "staleness s (versions)", "rate · curvature")
    axes.get_lines()[1].set(linestyle="--", color="0.5")
    for good, marker, label in ((True, "o", "server: arrives"), (False, "x", "server: diverges")):
        if places := [place for place, arrived in tried.items() if arrived == good]:
            axes.plot(*zip(*places, strict=True), marker, color=COLOURS[1], ms=7, label=label)
    axes.set_yscale("log")
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.legend(fontsize=9, edgecolor="none")
    return axes


def losses_by_rate(panels_of, y, top):
    """Losses by learning rate: for each title of `panels_of` {title: (x, {name: (rates,
    losses [rates, seeds])})} a panel; losses above `top` are out of sight.  Returns all axes."""
    drawn, all_lines = panels(len(panels_of), 5.4, 4.4), [lines for _, lines in panels_of.values()]
    floor = _floor(losses for lines in all_lines for _, losses in lines.values())
    for axes, (title, (x, lines)) in zip(drawn, panels_of.items(), strict=True):
        for (name, (rates, losses)), looks in zip(lines.items(), LOOKS, strict=False):
            _with_spread(axes, rates, losses, name, looks)
        ticks = sorted({rate for rates, _ in lines.values() for rate in rates})
        axes.set(xscale="log", yscale="log", ylim=(floor, top))
        axes.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
        axes.minorticks_off()
        _loss_ticks(axes)
        named(axes, title, x, y)
        axes.legend(fontsize=9, edgecolor="none", loc="lower left")
    return drawn


def two_clocks(courses, titles, y, top=None):
    """Losses by updates and by seconds: `courses` {name: (updates, seconds, losses [times,
    seeds])}, a panel for each of the two `titles`, one key below both.  Returns both axes."""
    drawn = panels(2, 5.4, 4.2)
    clocks = ("updates of the server", "seconds (imagined cluster)")
    for which, (axes, title, x) in enumerate(zip(drawn, titles, clocks, strict=True)):
        for (name, course), looks in zip(courses.items(), LOOKS, strict=False):
            _with_spread(axes, course[which], course[2], name, looks)
        axes.set(yscale="log", ylim=(_floor(losses for *_, losses in courses.values()), top))
        _loss_ticks(axes)
        named(axes, title, x, y)
    handles = drawn[0].get_legend_handles_labels()
    drawn[0].figure.legend(*handles, loc="outside lower center", ncols=len(courses), frameon=False)
    return drawn


def _with_spread(axes, xs, losses, name, looks):
    """The median over seeds as a line with markers, all seeds as a band."""
    (colour, dashes, marker), losses = looks, np.asarray(losses)
    axes.fill_between(xs, losses.min(axis=1), losses.max(axis=1), color=colour, alpha=0.18, lw=0)
    axes.plot(xs, np.median(losses, axis=1), linestyle=dashes, marker=marker, color=colour,
              label=name, ms=5, markevery=max(1, len(xs) // 8), lw=1.6)  # fmt: skip


def _floor(lines):
    """A little below the least of all losses of some lines, which may also go beyond all bounds."""
    return 0.8 * min(np.min(losses) for losses in lines)


def _loss_ticks(axes):
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5) if _inside(axes, tick)]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _inside(axes, y):
    low, high = axes.get_ylim()
    return low <= y <= high
