"""All-reduces from host to host, over an Ethernet in a box, against what its cables can carry."""

from benchmarks.all_reduce import rows
from benchmarks.report import MB, Aim, Table
from course.worlds import hosts

RATE = "1gbit"
AIMS = {("ring", p, 16): Aim("≥", 0.97) for p in (2, 4)}


def measure(turns, *, sizes_mb=(1, 4, 16), ranks=(2, 4)) -> Table:
    """Rows for every number of hosts, size and algorithm; no more than five turns."""
    parts = [over_cables(p, size_mb, min(turns, 5)) for p in ranks for size_mb in sizes_mb]
    return Table("All-reduces over 1 Gb/s", [row for part in parts for row in part], NOTE)


NOTE = """float32, one rank a host, unchecked. algbw = bytes / seconds and busbw = \
algbw x 2(p-1)/p, in GB/s, of the median time; ratio = the least time that the cables allow, \
2(p-1)/p n bytes of payload (1448 of 1514 that travel) from each host / the time; of auto: the \
best one's time / auto's time."""


def over_cables(p, size_mb, turns) -> list:
    box = hosts(p, 1, RATE)
    least_s = 2 * (p - 1) / p * size_mb * MB / box.bytes_per_s
    return rows(p, size_mb, turns, aims=AIMS, least_s=least_s, on=box)
