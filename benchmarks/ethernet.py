"""All-reduces from host to host, over an Ethernet in a box, against what its cables can carry."""

import statistics

from benchmarks.all_reduce import NEAR_THE_BEST, contestants
from benchmarks.report import MB, NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.comm.hosts import hosts

RATE = "1gbit"
AIMS = {("ring", 16): Aim("≥", 0.97)}


def measure(turns, *, sizes_mb=(1, 4, 16), ranks=(2, 4)) -> Table:
    """Rows for every number of hosts, size and algorithm; no more than five turns."""
    parts = [rows(p, size_mb, min(turns, 5)) for p in ranks for size_mb in sizes_mb]
    return Table("All-reduces over 1 Gb/s", [row for part in parts for row in part], NOTE)


NOTE = """float32, one rank a host, unchecked. ms: the median. ratio = the least time that the \
cables allow, 2(p-1)/p n bytes of payload (1448 of 1514 that travel) from each host / the time; \
of auto: the best one's time / auto's time."""


def rows(p, size_mb, turns) -> list:
    box = hosts(p, 1, RATE)
    times = race(contestants, p, turns, int(size_mb * MB), on=box)
    least = [2 * (p - 1) / p * size_mb * MB / box.bytes_per_s] * turns
    best = min(set(times) - {"auto"}, key=lambda name: statistics.median(times[name]))
    listed = [row(p, size_mb, name, times[name], least) for name in times if name != "auto"]
    return [*listed, row(p, size_mb, f"auto (best: {best})", times["auto"], times[best])]


def row(p, size_mb, name, seconds, others) -> dict:
    columns = {"ranks": p, "MB": size_mb, "algorithm": name}
    columns["ms"] = f"{1e3 * statistics.median(seconds):.1f}"
    aim = NEAR_THE_BEST if name.startswith("auto") else AIMS.get((name, size_mb), NO_AIM)
    return columns | judged(Ratio.of(others, seconds), aim)
