"""Draw a room of learners, to be projected on a wall: their guesses, and what they have solved."""

import textwrap

from course.classroom.figures import COLOURS, panels

MOST = 10  # questions, and exercises: more cannot be read from the last row
LARGE, TEXT = 20, 14  # points


def draw(factors, solved, learners):
    """Two axes.  On the left a row for each of `factors` {question: [guess / measured]}, a dot for
    each guess; on the right a bar for each of `solved` {exercise: (right, tried)} among so many
    learners, the pale part are those who are trying.  Where there are more than can be read, those
    with the most answers are shown.  Returns the axes."""
    asked = {name: each for name, each in factors.items() if each}
    asked = _most(asked, lambda name: len(asked[name]))
    done = _most(solved, lambda name: solved[name][1])
    height = 2.2 + 0.72 * max(len(asked), len(done), 2)
    left, right = panels(2, width=8, height=height)
    _guesses(left, asked)
    _exercises(right, done, learners)
    return [left, right]


def _most(rows, weight) -> dict:
    """The `MOST` heaviest of some rows, in their old order."""
    kept = set(sorted(rows, key=weight, reverse=True)[:MOST])
    return {name: each for name, each in rows.items() if name in kept}


def _guesses(axes, factors):
    for row, each in enumerate(factors.values()):
        spread = [row + 0.16 * (number % 3 - 1) for number in range(len(each))]  # dots side by side
        axes.plot(sorted(each), spread, "o", color=COLOURS[0], alpha=0.6, ms=11)
    axes.axvline(1, color=COLOURS[1], lw=3)
    axes.set_xscale("log")
    farthest = max([f for each in factors.values() for e in each for f in (e, 1 / e)], default=1)
    axes.set_xlim(0.6 / max(farthest, 2), 1.7 * max(farthest, 2))
    axes.set_xlabel("guess / measured: on the line is right", fontsize=TEXT)
    _rows(axes, [textwrap.fill(name, 38) for name in factors], "What the room has guessed")
    if not factors:
        axes.text(1, 0.5, "no guess has been compared yet", ha="center", fontsize=TEXT)


def _exercises(axes, solved, learners):
    for row, (right, tried) in enumerate(solved.values()):
        axes.barh(row, tried, 0.6, color="0.88", ec="0.6")
        axes.barh(row, right, 0.6, color=COLOURS[2])
        axes.text(tried, row, f" {right} of {learners}", va="center", fontsize=TEXT)
    axes.set_xlim(0, 1.25 * learners)
    axes.set_xlabel("learners: solved, and in grey trying", fontsize=TEXT)
    _rows(axes, list(solved), "What the room has solved")


def _rows(axes, names, title):
    axes.set_yticks(range(len(names)), names, fontsize=TEXT)
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=TEXT)
    axes.set_title(title, loc="left", fontsize=LARGE)
    axes.spines[["top", "right"]].set_visible(False)
