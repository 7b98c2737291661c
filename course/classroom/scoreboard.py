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

from course.cluster.hardware import ETHERNET_1G, GIGA, Device
from course.learning.training import digits
from course.worlds import run, simulated

WORKERS, IMAGES, BATCH, SLOW = 4, 6400, 64, 5.0
WORKER = Device("worker", GIGA, GIGA, GIGA, "chosen: a step takes less than its messages")
CABLE = ETHERNET_1G
HEADS = ("", "steps", "kB a step", "ms in all", "with one slow", "loss", "wrong (%)")


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

    def cells(self) -> tuple[str, ...]:
        """What stands in its columns."""
        return (self.name, str(self.steps), f"{self.step_bytes / 1e3:.2f}",
                f"{1e3 * self.seconds:.1f}", f"{1e3 * self.slow_seconds:.1f}",
                spread(self.losses), spread([100 * error for error in self.errors], 1))  # fmt: skip


class Outcome(NamedTuple):
    """Of one run: what was learned, the bytes that the busiest rank sent a step, and seconds."""

    verdict: digits.Verdict
    step_bytes: float
    seconds: float


class Scoreboard:
    """Rows in the order in which they were added; shows itself as a table."""

    def __init__(self):
        self.rows = []

    def add(self, name, train, *, batch=BATCH, learned=None, **how) -> Row:
        """A row: five seeds, and once with a slow worker; see `trial` for `batch` and `how`.

        Without a server the seeds learn side by side on real processes, which give the same and
        are quicker.  What they have `learned`, five pairs (loss, error), may be known already.
        Raises ValueError where the first does not learn as by itself: `train` has mixed them.
        """
        seed, how = digits.SEEDS[0], how | {"batch": batch}
        once, slow = trial(train, seed, **how), trial(train, seed, slow=SLOW, **how)
        if learned is None and how.get("servers"):
            learned = [once.verdict, *(trial(train, s, **how).verdict for s in digits.SEEDS[1:])]
        if learned is None:
            learned = verdicts(train, batch)
            if abs(learned[0].loss / once.verdict.loss - 1) > 0.02:
                raise ValueError(f"{name}: seeds learn together as alone, and the first did not")
        row = once.step_bytes, once.seconds, slow.seconds, *zip(*learned)
        self.rows.append(Row(name, steps_for(batch), *row))
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


def trial(train, seed, *, slow=1.0, batch=BATCH, servers=0, alone=False) -> Outcome:
    """One run of `train` by four workers, behind the ranks of so many `servers`.

    The last worker's arithmetic takes `slow` times as long.  `batch` images make a step of all
    workers together; all ways see the same number.  Workers who go each `alone`, without waiting,
    take batches in proportion to their speed, so many in all.
    """
    from course.cluster.fabric import one_switch  # here: no rank has use for networkx, 0.3 s

    shares = paces(slow if alone else 1.0, steps_for(batch))
    ranks = servers + WORKERS
    world = simulated(one_switch(ranks, WORKER, CABLE), slow={ranks - 1: slow})
    told = train, digits.digit_split().training, seed, batch, servers, shares
    each = run(_trained, ranks, *told, on=world, checked=False)
    seconds = max(end for *_, end in each) - min(begin for *_, begin, _ in each)
    step_bytes = max(sent for _, sent, *_ in each) / max(shares)
    return Outcome(_judged(seed, [weights for weights, *_ in each]), step_bytes, seconds)


def verdicts(train, batch=BATCH, seeds=digits.SEEDS) -> list[digits.Verdict]:
    """How good the networks of so many `seeds` are, learned side by side on four real processes.

    What `train` does to weights and gradients must not mix them: elements, each by itself.
    """
    return _learned(_together, train, batch, seeds)


def losses(train) -> list[float]:
    """The validation losses of five seeds, learned by `train` on four real processes one by one."""
    return [verdict.loss for verdict in _learned(_one_by_one, train, BATCH, digits.SEEDS)]


def spread(values, digits=3) -> str:
    """The mean of some values and their standard deviation, in words."""
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def steps_for(batch) -> int:
    """The steps in which batches of `batch` show as many images as all ways see."""
    return IMAGES // batch


def paces(slow, steps) -> list[int]:
    """How many of all workers' steps each takes, if one is `slow` and nobody waits for it."""
    speeds = [1.0] * (WORKERS - 1) + [1 / slow]
    whole = [round(WORKERS * steps * speed / sum(speeds)) for speed in speeds]
    return [*whole[:-1], WORKERS * steps - sum(whole[:-1])]


def _judged(seed, learned):
    """The verdict on the mean of the weights that ranks have `learned`, those that have any."""
    net = digits.digit_net(seed)
    mean = torch.stack([weights for weights in learned if weights is not None]).mean(dim=0)
    vector_to_parameters(mean, net.parameters())
    return digits.judge(net, digits.digit_split().validation)


def _learned(program, train, batch, seeds):
    """Unchecked, as in a trial: a roll call in each of so many short collectives takes a third
    longer."""
    images, steps = digits.digit_split().training, steps_for(batch)
    each = run(program, WORKERS, train, images, batch, steps, seeds, checked=False)
    return [_judged(seed, learned) for seed, *learned in zip(seeds, *each)]


def _together(comm, train, images, batch, steps, seeds):
    """The weights [seeds, elements] that this rank has learned."""
    nets = [digits.digit_net(seed) for seed in seeds]
    deals = [digits.batches(images, batch, steps, s, comm.rank, WORKERS) for s in seeds]
    deal = [digits.Images(*map(torch.stack, zip(*each))) for each in zip(*deals)]
    return digits.weights_of_each(train(comm, digits.stacked_nets(nets), deal), nets[0], len(nets))


def _one_by_one(comm, train, images, batch, steps, seeds):
    return [_trained(comm, train, images, s, batch, 0, [steps] * WORKERS)[0] for s in seeds]


def _trained(comm, train, images, seed, batch, servers, shares):
    """What this rank has learned, the bytes it has sent, when it began and when it ended."""
    worker, deal, begun = comm.rank - servers, [], []
    if worker >= 0:
        deal = digits.batches(images, batch, shares[worker], seed, worker, WORKERS)
    weights = train(comm, digits.digit_net(seed), _watched(comm, deal, begun))
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
