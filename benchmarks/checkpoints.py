"""How long training pauses for a checkpoint that is written beside it, against one that it waits
for, and against torch.save alone; and what steps cost meanwhile."""

import itertools
import os
import statistics
import tempfile
from pathlib import Path

import torch

from benchmarks.report import MB, NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, seconds
from course.cluster.failover import Alike, Checkpoints, Each
from course.worlds import run

PAUSE = Aim("≤", 0.1)
PAIRS = [("pause", "synchronous", PAUSE), ("pause", "torch.save", PAUSE),
         ("steps, beside", "steps, then", NO_AIM), ("steps, beside", "steps", NO_AIM)]  # fmt: skip
STEP_SIZE, STEPS = 512, 60  # of a square matrix; steps that a save may pass behind


def measure(turns, *, sizes_mb=(64,), ranks=(1, 2)) -> Table:
    """Rows for every number of ranks and size: the pause, by two measures; then a save with
    steps."""
    cases = [(p, size_mb) for p in ranks for size_mb in sizes_mb]
    return Table(
        "The pause for a checkpoint", [r for case in cases for r in rows(*case, turns)], NOTE
    )


NOTE = f"""Of a state of so many MB that all ranks have alike, written once, and a tenth of it \
that each has for itself. All files are synced to the disk. The pause is the time that `save` \
takes; the disk's time passes later. With {STEPS} steps (products of matrices of {STEP_SIZE}): \
until these and the save are through."""


def rows(p, size_mb, turns) -> list:
    with tempfile.TemporaryDirectory() as folder:
        told = run(take_turns, p, turns, int(size_mb * MB), folder, checked=False, timeout=300)
    times = {name: [max(spans) for spans in zip(*(said[name] for said in told))]
             for name in told[0]}  # fmt: skip
    return [row(p, size_mb, times, *pair) for pair in PAIRS]


def row(p, size_mb, times, above, below, aim) -> dict:
    medians = [f"{1e3 * statistics.median(times[name]):.1f}" for name in (above, below)]
    named = {"what": f"{above} / {below}", "ms": " / ".join(medians)}
    ratio = Ratio.of(times[above], times[below])
    return {"ranks": p, "MB": size_mb} | named | judged(ratio, aim)


def take_turns(comm, turns, nbytes, folder) -> dict:
    """{name: seconds on this rank in each turn}."""
    parts = {"alike": Alike(State(nbytes)), "own": Each(State(nbytes // 10))}
    x, steps = torch.randn(STEP_SIZE, STEP_SIZE), itertools.count(1)
    beside = Checkpoints(comm, Path(folder, "a"), every=1)
    waited = Checkpoints(comm, Path(folder, "b"), every=1, asynchronous=False)
    file = Path(folder, f"rank {comm.rank}.pt")

    def train():
        for _ in range(STEPS):
            x @ x

    def train_beside():
        beside.save(next(steps), parts)
        train()
        beside.finish()

    def train_then():
        waited.save(next(steps), parts)
        train()

    def timed(call, after=lambda: None):
        comm.barrier()
        took = seconds(call)
        after()
        return took

    contestants = {
        "pause": lambda: timed(lambda: beside.save(next(steps), parts), beside.finish),
        "synchronous": lambda: timed(lambda: waited.save(next(steps), parts)),
        "torch.save": lambda: timed(lambda: save_plainly(parts, comm.rank, file)),
        "steps, beside": lambda: timed(train_beside),
        "steps, then": lambda: timed(train_then),
        "steps": lambda: timed(train),
    }
    with beside, waited:
        return in_turns(contestants, turns)


class State:
    """Weights and two moments, as Adam has them, in tensors of 4 MB."""

    def __init__(self, nbytes):
        sizes = [MB] * (nbytes // (4 * MB)) or [nbytes // 4]
        self.tensors = {f"x{number}": torch.randn(size) for number, size in enumerate(sizes)}

    def state_dict(self):
        return self.tensors


def save_plainly(parts, rank, path):
    states = [part.shared() for part in parts.values()] if rank == 0 else []
    with open(path, "wb") as file:
        torch.save([*states, *(part.own() for part in parts.values())], file)
        file.flush()
        os.fsync(file.fileno())
