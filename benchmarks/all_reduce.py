"""The ring all-reduce of `course` against gloo's own, in the same ranks."""

import statistics

import torch

from benchmarks.report import GB, MB, NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.collectives import all_reduce

AIMS = dict.fromkeys((16, 128), Aim("≥", 1.0))  # by size in MB


def measure(turns, *, sizes_mb=(1, 16, 128), ranks=(2, 4)) -> Table:
    """Rows for every number of ranks and size."""
    rows = [row(p, size_mb, turns) for p in ranks for size_mb in sizes_mb]
    return Table("Ring all-reduce against gloo's", rows, NOTE)


NOTE = """float32, over the memory of one machine, unchecked. algbw = bytes / seconds and busbw = \
algbw x 2(p-1)/p, in GB/s, of the median time; ratio = gloo's time / ring's time."""


def row(p, size_mb, turns) -> dict:
    times = race(contestants, p, turns, int(size_mb * MB))
    columns = {"ranks": p, "MB": size_mb}
    for name, seconds in times.items():
        algbw = size_mb * MB / statistics.median(seconds) / GB
        busbw = algbw * 2 * (p - 1) / p
        columns |= {f"{name} algbw": f"{algbw:.2f}", f"{name} busbw": f"{busbw:.2f}"}
    ratio = Ratio.of(times["gloo"], times["ring"])
    return columns | judged(ratio, AIMS.get(size_mb, NO_AIM))


def contestants(comm, nbytes) -> dict:
    x = torch.zeros(nbytes // 4)  # which stay zeros, however often they are added
    return {
        "ring": lambda: all_reduce(comm, x),
        "gloo": lambda: all_reduce(comm, x, algorithm="native"),
    }
