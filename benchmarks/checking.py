"""What the checked mode costs: the ring all-reduce with and without it, in the same ranks."""

import copy
import statistics

import torch

from benchmarks.report import MB, NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.collectives import all_reduce

AIMS = {16: Aim("≤", 1.1)}  # by size in MB


def measure(turns, *, sizes_mb=(1, 16), ranks=(2, 4)) -> Table:
    """Rows for every number of ranks and size."""
    rows = [row(p, size_mb, turns) for p in ranks for size_mb in sizes_mb]
    return Table("Checked calls against unchecked ones", rows, NOTE)


NOTE = """Ring all-reduce of float32; before a checked call all ranks tell one another which call \
they are in. ratio = checked time / unchecked time."""


def row(p, size_mb, turns) -> dict:
    times = race(contestants, p, turns, int(size_mb * MB))
    medians = {f"{name}, ms": f"{1e3 * statistics.median(times[name]):.2f}" for name in times}
    ratio = Ratio.of(times["checked"], times["unchecked"])
    return {"ranks": p, "MB": size_mb} | medians | judged(ratio, AIMS.get(size_mb, NO_AIM))


def contestants(comm, nbytes) -> dict:
    """The same ranks and wires twice: a group of all of them, in which calls are checked."""
    checked, x = comm.split(0), torch.zeros(nbytes // 4)
    checked._transport = copy.copy(comm._transport)
    checked._transport.checked = True
    return {"checked": lambda: all_reduce(checked, x), "unchecked": lambda: all_reduce(comm, x)}
