"""One table for all ways to train on many: what is sent, how long it takes, and what is learned.

    board = Scoreboard()
    board.add("all-reduce in every step", train)

`train(comm, net, batches)` is a program for every rank: it takes a step for each (x, y) of its
`batches` and returns the weights to be judged, flat [elements], or None from a rank that has none;
those of several ranks are averaged.  `trainings.py` has such programs.  All learn the digits of
`course/learning/training/digits.py` from as many images, on one imagined cluster.
"""

import html
import itertools
import statistics
from typing import NamedTuple

import torch
from torch.nn.utils import vector_to_parameters

from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_1G, GIGA, Device
from course.learning.training import digits
from course.worlds import run, simulated

WORKERS, IMAGES, BATCH, SLOW = 4, 6400, 64, 5.0
WORKER = Device(
    "worker", 1 * GIGA, 1 * GIGA, 1 * GIGA, "chosen: a step takes less than its messages"
)
CABLE = ETHERNET_1G
HEADS = ("", "steps", "kB a step", "ms", "ms, one slow", "loss", "wrong (%)")


class Row(NamedTuple):
    """A way to train: steps of each worker, bytes that the busiest rank sends a step, seconds of
    the imagined cluster, those with one slow worker, and loss and share of wrong answers on the
    validation images, a number for each seed."""

    name: str
    steps: int
    step_bytes: float
    seconds: float
    slow_seconds: float
    losses: tuple
    errors: tuple

    @property
    def loss(self) -> float:
        return statistics.mean(self.losses)

    @property
    def spread(self) -> float:
        """The standard deviation of the loss between seeds."""
        return statistics.stdev(self.losses)

    def cells(self) -> tuple[str, ...]:
        """What stands in its columns."""
        error = (
            f"{100 * statistics.mean(self.errors):.1f} ± {100 * statistics.stdev(self.errors):.1f}"
        )
        return (self.name, str(self.steps), f"{self.step_bytes / 1e3:.2f}",
                f"{1e3 * self.seconds:.1f}", f"{1e3 * self.slow_seconds:.1f}",
                f"{self.loss:.3f} ± {self.spread:.3f}", error)  # fmt: skip


class Outcome(NamedTuple):
    """Of one run: what was learned, the bytes that the busiest rank sent a step, and seconds."""

    verdict: digits.Verdict
    step_bytes: float
    seconds: float


class Scoreboard:
    """Rows in the order in which they were added; shows itself as a table."""

    def __init__(self):
        self.rows = []

    def add(self, name, train, **how) -> Row:
        """Run `train` with five seeds and once with a slow worker: a row; see `race` for `how`."""
        each = [race(train, seed, **how) for seed in digits.SEEDS]
        slow = race(train, digits.SEEDS[0], slow=SLOW, **how)
        verdicts = [outcome.verdict for outcome in each]
        self.rows.append(Row(
            name, steps_of(how.get("batch", BATCH)), each[0].step_bytes, each[0].seconds,
            slow.seconds, *zip(*verdicts),
        ))  # fmt: skip
        return self.rows[-1]

    def __repr__(self):
        table = [HEADS, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = []
        for name, *cells in table:
            right = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:]))
            lines.append("  ".join([f"{name:{widths[0]}}", *right]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self):
        lines = [_line("th", HEADS), *(_line("td", row.cells()) for row in self.rows)]
        return f"<table>{''.join(lines)}</table>"


def race(train, seed, *, slow=1.0, batch=BATCH, servers=0, alone=False) -> Outcome:
    """One run of `train` by four workers, behind the ranks of so many `servers`.

    The last worker's arithmetic takes `slow` times as long.  `batch` images make a step of all
    workers together; all ways see the same number.  Workers who go each `alone`, without waiting,
    take batches in proportion to their speed, so many in all.
    """
    shares = paces(slow if alone else 1.0, steps_of(batch))
    ranks = servers + WORKERS
    world = simulated(one_switch(ranks, WORKER, CABLE), slow={ranks - 1: slow})
    each = run(_trained, ranks, train, seed, batch, servers, shares, on=world, checked=False)
    learned = [weights for weights, *_ in each if weights is not None]
    net = digits.net(seed)
    vector_to_parameters(torch.stack(learned).mean(dim=0), net.parameters())
    seconds = max(end for *_, end in each) - min(begin for *_, begin, _ in each)
    step_bytes = max(sent for _, sent, *_ in each) / max(shares)
    return Outcome(digits.judge(net, digits.digits().validation), step_bytes, seconds)


def steps_of(batch) -> int:
    """The steps in which batches of `batch` show as many images as all ways see."""
    return IMAGES // batch


def paces(slow, steps) -> list[int]:
    """How many of all workers' steps each takes, if one is `slow` and nobody waits for it."""
    speeds = [1.0] * (WORKERS - 1) + [1 / slow]
    whole = [round(WORKERS * steps * speed / sum(speeds)) for speed in speeds]
    return [*whole[:-1], WORKERS * steps - sum(whole[:-1])]


def _trained(comm, train, seed, batch, servers, shares):
    """What this rank has learned, the bytes it has sent, when it began and when it ended."""
    worker, deal, begun = comm.rank - servers, [], []
    if worker >= 0:
        images = digits.digits().training
        deal = digits.batches(images, batch, shares[worker], seed, worker, WORKERS)
    weights = train(comm, digits.net(seed), _watched(comm, deal, begun))
    sent, begin = begun[0] if worker >= 0 else (0, float("inf"))
    return weights, comm.meter.sent_bytes - sent, begin, comm.clock()


def _watched(comm, deal, begun):
    """The batches of `deal`; into `begun` what was sent before the first, and when it was taken."""
    begun.append((comm.meter.sent_bytes, comm.clock()))
    yield from deal


def _line(tag, cells):
    """A row of an HTML table, its numbers to the right."""
    sides = itertools.chain(["left"], itertools.repeat("right"))
    inside = (f'<{tag} style="text-align: {side}; white-space: nowrap">{html.escape(cell)}</{tag}>'
              for side, cell in zip(sides, cells))  # fmt: skip
    return f"<tr>{''.join(inside)}</tr>"
