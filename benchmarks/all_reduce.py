"""The all-reduces of `course` against gloo's own, in the same ranks."""

import statistics

import torch

from benchmarks.report import GB, MB, NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.collectives import all_reduce
from course.collectives.all_reduce import ALGORITHMS

AIMS = {("ring", p, size_mb): Aim("≥", 1.0) for p in (2, 4) for size_mb in (16, 128)} | {
    ("hierarchical", 2, 16): Aim("≥", 1.3),
    ("hierarchical", 4, 128): Aim("≥", 2.5),
}
NEAR_THE_BEST = Aim("≥", 0.9)
CONTESTANTS = {"gloo": "native"} | {name: name for name in (*ALGORITHMS, "auto")}


def measure(turns, *, sizes_mb=(0.001, 1, 16, 128), ranks=(2, 4)) -> Table:
    """Rows for every number of ranks, size and algorithm."""
    parts = [rows(p, size_mb, turns) for p in ranks for size_mb in sizes_mb]
    return Table("All-reduces against gloo's", [row for part in parts for row in part], NOTE)


NOTE = """float32, over the memory of one machine, unchecked. algbw = bytes / seconds and busbw = \
algbw x 2(p-1)/p, in GB/s, of the median time; ratio = gloo's time / the algorithm's time; of \
auto: the best one's time / auto's time. hierarchical: through the memory that the ranks share."""


def rows(p, size_mb, turns, *, aims=AIMS, least_s=None, on=None) -> list:
    """Compared with gloo, or with the least time that is possible where that is known."""
    times = race(contestants, p, turns, int(size_mb * MB), on=on)
    others = times["gloo"] if least_s is None else [least_s] * turns
    best = min(times.keys() - {"auto"}, key=lambda name: statistics.median(times[name]))
    listed = [row(p, size_mb, name, times[name], others, aims) for name in times if name != "auto"]
    return [*listed, row(p, size_mb, f"auto (best: {best})", times["auto"], times[best], aims)]


def row(p, size_mb, name, seconds, others, aims) -> dict:
    algbw = size_mb * MB / statistics.median(seconds) / GB
    columns = {"ranks": p, "MB": size_mb, "algorithm": name, "algbw": f"{algbw:.3g}"}
    columns["busbw"] = f"{algbw * 2 * (p - 1) / p:.3g}"
    aim = NEAR_THE_BEST if name.startswith("auto") else aims.get((name, p, size_mb), NO_AIM)
    return columns | judged(Ratio.of(others, seconds), aim)


def contestants(comm, nbytes) -> dict:
    x = torch.zeros(nbytes // 4)  # which stay zeros, however often they are added

    def call(algorithm):
        return lambda: all_reduce(comm, x, algorithm=algorithm)

    return {name: call(algorithm) for name, algorithm in CONTESTANTS.items()}
