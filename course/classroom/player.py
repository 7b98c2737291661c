"""Play a run back: who holds what after each step, from the messages that its trace recorded.

`holdings` follows the parts from rank to rank, `grid` draws them after one step, `play` puts a
slider to it; `rounds` draws all messages at once, as wide as they are long, and `planned` the
messages of a plan.
"""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from course.classroom.figures import COLOURS, named, panels
from course.classroom.widgets import slider, sliders
from course.comm.trace import Message

HELD, MOVED, EMPTY = COLOURS[4], COLOURS[1], "#EEEEEE"
BOLD = {"arrowstyle": "simple,head_width=9,head_length=9,tail_width=3", "zorder": 3}
SLENDER = {"arrowstyle": "-|>", "mutation_scale": 14, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.5}
WIDEST, NARROWEST = 6.0, 0.5  # points that the longest message is wide, and the shortest
COLUMN = 0.86  # of the width that a rank has
INCHES_PER_RANK = 2.2


def everything(message, held):
    """What a message carries when its sender passes on all that it holds."""
    return held


def holdings(messages, start, carries=everything) -> list[list[set]]:
    """Who holds which parts, a set for each rank, at the start and after each step.

    `start` [a set for each rank]; `carries(message, held)` says which of the sender's parts a
    message has taken along.  Raises ValueError if the sender did not hold one of them.
    """
    after = [[set(held) for held in start]]
    for step in range(1, 1 + max((message.step for message in messages), default=0)):
        before, now = after[-1], [set(held) for held in after[-1]]
        for message in sent_in(messages, step):
            parts = set(carries(message, before[message.src]))
            missing = sorted(parts - before[message.src])
            if missing:
                raise ValueError(
                    f"in step {step}, rank {message.src} sends part {missing[0]} "
                    f"to rank {message.dst}, and does not hold it"
                )
            now[message.dst] |= parts
        after.append(now)
    return after


def planned(plan) -> list[Message]:
    """The messages of a plan: rounds of (from, to), one round a step."""
    return [
        Message(step, src, dst, step - 1, 0, step - 1.0, float(step))
        for step, pairs in enumerate(plan, 1)
        for src, dst in pairs
    ]


def play(messages, start, whole, *, carries=everything, pictures=None, summed=False, film=()):
    """A slider over the steps of a run, and the `grid` after the step that it shows; `film` says
    which steps stay as a film strip, as for `sliders`."""
    states = holdings(messages, start, carries)

    def draw(step):
        grid(messages, states, step, whole, carries=carries, pictures=pictures, summed=summed)

    sliders(draw, film=film, step=slider("step", 0, len(states) - 1, 0))


def grid(messages, states, step, whole, *, carries=everything, pictures=None, summed=False):
    """Ranks side by side, each with the parts it holds after `step`; arrows: that step's messages.

    `whole` is what all the parts are together, in words.  `pictures` [height, width] are shown
    for the parts; `summed`: a rank's parts have become one number, or one a chunk if each part is a
    pair (chunk, rank whose term it is).  Returns the axes.
    """
    ranks, parts = len(states[0]), sorted(set.union(*states[0]))
    rows = sorted({row_of(part, summed) for part in parts})
    height = cell_height(pictures, rows, summed)
    axes = panels(1, INCHES_PER_RANK * ranks, INCHES_PER_RANK * height * len(rows) + 1)[0]
    for rank, held in enumerate(states[step]):
        for number, row in enumerate(rows):
            here, all_of_it = (
                [part for part in some if row_of(part, summed) == row] for some in (held, parts)
            )
            share = len(here) / len(all_of_it)
            cell(axes, rank, number * height, height, share, row, pictures)
            if summed:
                label(axes, rank, (number + 0.7) * height, here)
    for message in sent_in(messages, step):
        along = carries(message, states[step - 1][message.src])
        row = np.mean([rows.index(row_of(part, summed)) for part in along])
        arrow(axes, message, height * (row + (0.35 if summed else 0.5)), height)
    named(axes, answer(states, step, whole), account(messages, step), "")
    kind = "chunk" if summed else "part"
    return bare(axes, ranks, height, [row if row == "sum" else f"{kind} {row}" for row in rows])


def row_of(part, summed):
    """The row in which a part is shown: its own, or that of the sum which it is a term of."""
    if not summed:
        return part
    return part[0] if isinstance(part, tuple) else "sum"


def label(axes, rank, y, held):
    """The terms of the sum that a rank holds."""
    terms = sorted(part[1] if isinstance(part, tuple) else part for part in held)
    text = " + ".join(f"$x_{term}$" for term in terms)
    axes.text(rank, y, text, ha="center", va="center", fontsize=12)


def bare(axes, ranks, height, names):
    """The axes with the names of ranks and parts, and without a frame."""
    axes.set(xlim=(-0.5, ranks - 0.5), ylim=(height * len(names), -0.12), aspect="equal")
    axes.set_xticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_yticks([height * (row + 0.5) for row in range(len(names))], names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return axes


def answer(states, step, whole) -> str:
    """How many ranks hold all parts after `step`, in words."""
    parts, ranks = set.union(*states[0]), len(states[0])
    done = sum(held == parts for held in states[step])
    when = f"After step {step} of {len(states) - 1}" if step else "At the start"
    return f"{when}, {done} of {ranks} ranks {'holds' if done == 1 else 'hold'} {whole}"


def account(messages, step) -> str:
    """What `step` has sent, and all steps so far."""
    now = sent_in(messages, step)
    total = sum(message.bytes for message in messages if message.step <= step)
    count = f"{len(now)} message{'s' * (len(now) != 1)}"
    return f"{count} in this step; {total:,} bytes in all so far"


def sent_in(messages, step) -> list:
    """The messages of one step."""
    return [message for message in messages if message.step == step]


def cell_height(pictures, rows, summed=False) -> float:
    """The height of one cell, if a rank is one wide."""
    if pictures is None:
        return 0.5 if len(rows) == 1 else 0.26 if summed else 0.2
    return COLUMN * np.shape(pictures[0])[0] / np.shape(pictures[0])[1]


def cell(axes, rank, top, height, share, part, pictures):
    """One part on one rank: its picture, or a colour by the `share` of it that the rank holds."""
    left, right = rank - COLUMN / 2, rank + COLUMN / 2
    for colour, alpha in ((EMPTY, 1), (HELD, share)):
        axes.add_patch(Rectangle((left, top), COLUMN, height, fc=colour, ec="white", alpha=alpha))
    if share and pictures is not None:
        extent = (left, right, top + height, top)
        shown = np.asarray(pictures[part])
        axes.imshow(shown, "gray", vmin=0, vmax=1, extent=extent, aspect="auto", zorder=2)


def arrow(axes, message, y, height):
    """A message from its source's column to its target's, bowed where it passes other ranks."""
    way = message.dst - message.src
    reach = 0.28 * np.sign(way)
    ends = (message.src + reach, y), (message.dst - reach, y)
    bow = 0 if abs(way) == 1 else -0.6 * height / way
    style = f"arc3,rad={bow}"
    axes.add_patch(FancyArrowPatch(*ends, **BOLD, connectionstyle=style, color=MOVED, ec="white"))


def rounds(messages, ranks, title, axes=None, *, full=None):
    """All messages of a run or a plan: each rank a line downwards, a step after another, and an
    arrow for each message, in the colour of its collective.  Returns the axes.

    Arrows are as wide as their messages are long; `full` bytes are WIDEST (None: the longest
    message is, and where all are equally long, every arrow is slender).
    """
    steps = max(message.step for message in messages)
    axes = axes or panels(1, height=1.2 + 0.5 * steps)[0]
    axes.vlines(range(ranks), 0, steps, color="0.75", zorder=1)
    names = list(dict.fromkeys(message.call.split(" ")[0] for message in messages))
    for message in messages:
        colour = COLOURS[names.index(message.call.split(" ")[0])]
        ends = (message.src, message.step - 1), (message.dst, message.step)
        axes.add_patch(FancyArrowPatch(*ends, **look(message, messages, full), color=colour))
    axes.set(xlim=(-0.3, ranks - 0.7), ylim=(steps + 0.1, -0.1))
    axes.set_xticks(range(ranks))
    axes.set_yticks(range(steps + 1))
    named(axes, title, "rank", "steps done")
    if any(names):
        keys = [Line2D([], [], color=colour, linewidth=3) for colour in COLOURS[: len(names)]]
        axes.legend(keys, names, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def look(message, messages, full) -> dict:
    """How the arrow of one of the messages is drawn; see `rounds`."""
    lengths = {each.bytes for each in messages}
    if full is None and len(lengths) == 1:
        return SLENDER
    width = max(NARROWEST, WIDEST * message.bytes / (full or max(lengths)))
    style = f"simple,tail_width={width:g},head_width={width + 4:g},head_length=7"
    return {"arrowstyle": style, "shrinkA": 0, "shrinkB": 0, "linewidth": 0, "alpha": 0.8}
