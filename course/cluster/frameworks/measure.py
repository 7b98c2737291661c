"""Train in each way on the same batches: losses, seconds of a step, lines of code, traces."""

import ast
import inspect
import os
import statistics
import textwrap
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from course.cluster.frameworks.chrome import STEP, add_messages
from course.cluster.frameworks.ways import WAYS
from course.comm import Trace
from course.learning.training.digits import batches, digit_net, digit_split
from course.worlds import run

WIDTHS, BATCH, SEED = (64, 512, 512, 512, 10), 64, 0
WARM, PROFILED = 3, 4  # steps that are not timed: before those that are, and after them


class Training(NamedTuple):
    """What came of one way: the loss of each batch, the seconds of the median step on the slowest
    rank, the statements of its function, and its Chrome traces, one file a rank."""

    losses: tuple
    step_s: float
    statements: int
    traces: tuple = ()

    def difference(self, other) -> float:
        """The largest distance between its losses and those of `other`."""
        return max(abs(a - b) for a, b in zip(self.losses, other.losses, strict=True))


def train_in(ways=None, ranks=2, *, steps=20, dtype=torch.float32, folder=None, on=None) -> dict:
    """{name: Training} of `ways` {name: function}, one after another on the same ranks.

    All learn digits with one network, seed and order; `steps` are timed, after a few to warm up.
    With a `folder` some more steps are profiled, and their traces are in it, way.rank.json, with
    the collective calls of `course`, of which torch's profiler does not know.
    Raises as `run` does, and FileExistsError rather than write over a trace.
    """
    ways = WAYS if ways is None else ways
    trace, images = Trace(), digit_split(dtype).training
    for path in (path for name in ways for path in _paths(folder, name, ranks)):
        if os.path.exists(path):
            raise FileExistsError(f"{path} exists, and traces are not overwritten")
    said = run(_train, ranks, ways, images, steps, folder, on=on, trace=trace, checked=False,
               timeout=120)  # fmt: skip
    found = {}
    for name, way in ways.items():
        each, paths = [values[name] for values in said], _paths(folder, name, ranks)
        for rank, path in enumerate(paths):
            add_messages(path, _between(trace, rank, each[rank].begun), each[rank].begun)
        found[name] = _training(way, each, paths)
    return found


def statements(way) -> int:
    """How many statements the function `way` has, its docstring not counted."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(way))).body
    inner = [node for node in ast.walk(function) if isinstance(node, ast.stmt)][1:]
    return len(inner) - (ast.get_docstring(function) is not None)


class Heard(NamedTuple):
    """Of one rank: the losses, if it knows them, of how many rows each was, the seconds of its
    median step, and when the profiled steps began, and the last ended, by the clock of the run."""

    losses: list | None
    rows: list
    step_s: float
    begun: list


class Watch:
    """Deals batches and looks at the clock: each step is from one batch to the next."""

    def __init__(self, images, timed, clock, path=None):
        self.images, self.timed, self.clock, self.path = images, timed, clock, path
        self.seconds, self.begun, self.rows = [], [], []

    def __call__(self, rank=0, ranks=1):
        """The rank's part of each batch; the last few steps are profiled, if there is a path."""
        count = WARM + self.timed + (PROFILED if self.path else 0)
        dealt = batches(self.images, BATCH, count, SEED, rank, ranks)
        self.rows = [len(x) for x, _ in dealt]
        for batch in dealt[: WARM + self.timed]:
            begin = self.clock()
            yield batch
            self.seconds.append(self.clock() - begin)
        if self.path:
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                for batch in dealt[WARM + self.timed :]:
                    with record_function(STEP):  # takes milliseconds to begin the first time
                        self.begun.append(self.clock())
                        yield batch
            self.begun.append(self.clock())
            profiler.export_chrome_trace(self.path)


def _train(comm, ways, images, steps, folder) -> dict:
    """{name: Heard}."""
    os.environ["KINETO_LOG_LEVEL"] = "99"  # or it says when it starts and when it stops
    found = {}
    for name, way in ways.items():
        net = digit_net(SEED, WIDTHS).to(images.x.dtype)
        path = _paths(folder, name, comm.size)[comm.rank] if folder else None
        watch = Watch(images, steps, comm.clock, path)
        comm.barrier()
        losses = way(comm, net, watch)
        found[name] = Heard(
            losses, watch.rows, statistics.median(watch.seconds[WARM:]), watch.begun
        )
    return found


def _between(trace, rank, begun) -> list:
    """The events of a rank in its profiled steps."""
    return [
        e for e in trace.events if e.rank == rank and begun[0] <= e.start and e.end <= begun[-1]
    ]


def _training(way, heard, traces) -> Training:
    known = [each for each in heard if each.losses]
    losses, rows = zip(*[each.losses for each in known]), zip(*[each.rows for each in known])
    means = tuple(map(statistics.fmean, losses, rows))
    return Training(means, max(each.step_s for each in heard), statements(way), traces)


def _paths(folder, name, ranks) -> tuple:
    """Where the traces of a way are, by rank: nowhere without a folder."""
    each = [f"{name.replace(' ', '_')}.{rank}.json" for rank in range(ranks)]
    return tuple(os.path.join(folder, file) for file in each) if folder else ()
