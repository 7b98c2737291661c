"""Is the imagined cluster true?  The time of every all-reduce over a real Ethernet in a box,
predicted from the figures of its links and measured."""

import statistics
import time
from typing import NamedTuple

import torch

from benchmarks.report import MB, Table
from benchmarks.turns import Stolen
from course.cluster.fabric import ethernet_box
from course.cluster.hardware import Cable, Device
from course.collectives import all_reduce
from course.collectives.all_reduce import ALGORITHMS
from course.collectives.ring import SEGMENT_BYTES
from course.worlds import hosts, run, simulated

BOXES = [hosts(2, 1, "1gbit"), hosts(4, 1, "1gbit"), hosts(2, 2, "1gbit"),
         hosts(2, 1, "100mbit"), hosts(4, 1, "100mbit"), hosts(2, 2, "100mbit")]  # fmt: skip
SIZES_MB = {"1gbit": (1, 4, 16, 64), "100mbit": (1, 4, 16)}
WITHIN = 1.1  # of each other are two times that agree
LONG = 4 * MB
BEYOND_CACHES = 64 * MB


class Figures(NamedTuple):
    """Of a box's ranks: seconds a message and bytes a second within a host and from host to host,
    bytes a second of combining."""

    inside_s: float
    inside_bytes_per_s: float
    across_s: float
    across_bytes_per_s: float
    combined_bytes_per_s: float


def measure(turns, *, boxes=BOXES, sizes=SIZES_MB) -> Table:
    """A row for every algorithm and size on every box; no more than three turns."""
    rows = [row for box in boxes for row in rows_of(box, sizes[box.rate], min(turns, 3))]
    return Table("All-reduce over an Ethernet in a box: measured / predicted", rows, NOTE)


NOTE = f"""Unchecked, float32. Met: the median is within {WITHIN:.2f} of the prediction, either \
way. misranked: algorithms that were slower for the same size though predicted to be faster, or \
the other way round, by more than that. stolen: the part of the cores' time that went to other \
machines while the whole box was measured, as the system tells it."""


def rows_of(box, sizes_mb, turns) -> list:
    jobs = [(algorithm, mb) for mb in sizes_mb for algorithm in ALGORITHMS]
    with Stolen() as stolen:
        measured, cluster = measured_s(box, jobs, turns), imagined(box, figures(box))
    predicted = {job: predicted_s(cluster, ranks_of(box), *job) for job in jobs}
    return [row(box, job, predicted, measured) | {"stolen": str(stolen)} for job in jobs]


def row(box, job, predicted, measured) -> dict:
    (algorithm, mb), times = job, [seconds / predicted[job] for seconds in measured[job]]
    ratio = statistics.median(times)
    return {
        "box": f"{box.number} x {box.ranks_per_host}, {box.rate}", "MB": mb,
        "algorithm": algorithm, "predicted s": f"{predicted[job]:.4f}", "ratio": f"{ratio:.2f}",
        "lowest to highest": f"{min(times):.2f} to {max(times):.2f}",
        "met": "yes" if 1 / WITHIN <= ratio <= WITHIN else "no",
        "misranked": ", ".join(misranked(job, predicted, measured)) or "none",
    }  # fmt: skip


def misranked(job, predicted, measured):
    """The algorithms of which the prediction says the wrong thing beside this one."""
    for other in predicted:
        foreseen = predicted[job] / predicted[other]
        found = statistics.median(measured[job]) / statistics.median(measured[other])
        clear = min(max(ratio, 1 / ratio) for ratio in (foreseen, found)) > WITHIN
        if other[1] == job[1] and clear and (foreseen - 1) * (found - 1) < 0:
            yield other[0]


def ranks_of(box) -> int:
    return box.number * box.ranks_per_host


# Measured


def measured_s(box, jobs, turns) -> dict:
    """{(algorithm, MB): seconds in each turn}, from the first rank's beginning to the last's end;
    a turn before the first warms up."""
    by_rank = run(spans, ranks_of(box), jobs, turns, on=box, checked=False, timeout=120)
    return {job: [max(end for _, end in turn) - min(start for start, _ in turn)
                  for turn in list(zip(*(said[job] for said in by_rank)))[1:]]
            for job in jobs}  # fmt: skip


def spans(comm, jobs, turns) -> dict:
    return {job: [span(comm, *job) for _ in range(turns + 1)] for job in jobs}


def span(comm, algorithm, mb):
    x = torch.zeros(mb * MB // 4)
    comm.barrier()
    start = time.perf_counter()  # one clock for all hosts of a box
    all_reduce(comm, x, algorithm=algorithm)
    return start, time.perf_counter()


# Predicted


def figures(box) -> Figures:
    """Measured between the first two ranks of a host, and between the first and the last rank."""
    inside_s, across_s, inside, combined = run(look, ranks_of(box), on=box, checked=False)[0]
    return Figures(inside_s, inside, max(0.0, across_s - inside_s), box.bytes_per_s, combined)


def look(comm) -> tuple:
    """Half of a round trip there and inside, bytes a second inside and of combining."""
    inside_s, inside = 0.0, float("inf")
    if comm.nodes[1] == comm.nodes[0]:
        inside_s = one_way(comm, 1, 0)
        inside = LONG / max(one_way(comm, 1, LONG) - inside_s, 1e-9)
    across_s = one_way(comm, comm.size - 1, 0)
    comm.barrier()
    return inside_s, across_s, inside, 3 * BEYOND_CACHES / quickest(combining(), turns=5)


def combining():
    """A call that combines segment by segment, as a ring does: what came is in the cache, the
    tensor is not."""
    segment = torch.zeros(SEGMENT_BYTES // 4)
    segments = torch.zeros(BEYOND_CACHES // 4).split(len(segment))
    return lambda: [mine.add_(segment[: len(mine)]) for mine in segments]


def one_way(comm, peer, nbytes) -> float:
    """Seconds of a message from rank 0 to `peer`."""
    x = torch.zeros(nbytes, dtype=torch.uint8)
    comm.barrier()
    if comm.rank == 0:
        return quickest(lambda: (comm.send(x, peer), comm.recv(x, peer))) / 2
    if comm.rank == peer:
        quickest(lambda: (comm.recv(x, 0), comm.send(x, 0)))
    return 0.0


def quickest(call, turns=30) -> float:
    """The median, in seconds."""
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def imagined(box, found: Figures):
    """A world like the box."""
    core = Device("a core", float("inf"), found.combined_bytes_per_s, float("inf"), "measured")
    memory = Cable("memory", found.inside_s / 2, found.inside_bytes_per_s, "measured")
    ethernet = Cable("Ethernet", found.across_s / 2, found.across_bytes_per_s, "measured")
    graph = ethernet_box(box.number, box.ranks_per_host, core, memory, ethernet)
    return simulated(graph, device="meta")


def predicted_s(cluster, ranks, algorithm, mb) -> float:
    return max(run(alone, ranks, algorithm, mb, on=cluster, checked=False))


def alone(comm, algorithm, mb) -> float:
    x = torch.empty(mb * MB // 4, device=comm.device)
    all_reduce(comm, x, algorithm=algorithm)
    return comm.clock()
