"""Steps of the programs, timed on ranks of a world or simulated on an imagined cluster."""

import statistics
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from course.cluster.scaling.programs import PROGRAMS
from course.cluster.scaling.results import STRONG, WEAK, Point, Results, provenance
from course.worlds import run, simulated

AMOUNTS = {STRONG: lambda ranks: 1, WEAK: lambda ranks: ranks}


def measure(world, ranks, programs=tuple(PROGRAMS), *, turns=5, resting=0, told=print):
    """Results of all `programs` on so many `ranks` each, strong and weak.

    `world(p)` is where p ranks live; `told` hears of each point.  With `resting` layers the
    arithmetic needs no core: more ranks than cores then show the curve of a cluster, and the nearer
    the longer they rest (`resting` times 0.2 to 0.5 s for a step of one rank).
    Every rank has as many threads as each of the most ranks has: a rank alone would else be a
    larger machine, or, with little to compute, a slower one, as threads that rested wake late.
    Raises ValueError for a program that is not known, and as `run` does.
    """
    _check(programs, turns)
    points, most = [], max(ranks)
    threads = min(run(_threads, most, on=world(most), timeout=120))
    for program in programs:
        for scaling, amount in AMOUNTS.items():
            for p in ranks:
                said = run(_timed, p, program, amount(p), resting, turns, threads, on=world(p),
                           checked=False, timeout=120)  # fmt: skip
                spans, *counts = zip(*said)
                seconds = statistics.median(max(turn) for turn in zip(*spans))
                points.append(Point(program, scaling, p, "measured", seconds, *map(sum, counts)))
                told(_sentence(points[-1]))
    return Results(points, provenance(world(most), resting, turns))


def simulate(cluster, ranks, programs=tuple(PROGRAMS), *, resting=1, told=print) -> list[Point]:
    """The same Points of resting programs, of one step each on `cluster(p)`, an imagined one."""
    _check(programs, 1)
    points = []
    for program in programs:
        for scaling, amount in AMOUNTS.items():
            for p in ranks:
                world = simulated(cluster(p), device="meta")
                job = program, amount(p), resting
                said = run(_once, p, *job, on=world, checked=False, timeout=None)
                seconds = max(after - before for before, after, _ in said)
                sent = sum(nbytes for *_, nbytes in said)
                points.append(Point(program, scaling, p, "simulated", seconds, sent))
                told(_sentence(points[-1]))
    return points


def _check(programs, turns):
    if turns < 1:
        raise ValueError(f"a step is timed at least once, not {turns} times")
    for program in programs:
        if program not in PROGRAMS:
            raise ValueError(f"there is no program {program!r} among {', '.join(PROGRAMS)}")


def _sentence(point) -> str:
    return (f"{point.program:14} {point.scaling:7} {point.ranks:3} ranks: "
            f"{1e3 * point.seconds:8.1f} ms {point.source}")  # fmt: skip


def _threads(comm) -> int:
    """How many threads a rank of this world computes with."""
    return torch.get_num_threads()


def _timed(comm, program, amount, resting, turns, threads):
    """(seconds of each of this rank's steps, bytes that it sends in one, and its floating-point
    operations), after one to warm up, in which these are counted.

    Ranks begin together: a barrier is before each step, and not in its time.
    """
    torch.set_num_threads(threads)
    step, seconds = PROGRAMS[program](comm, amount, resting), []
    with FlopCounterMode(display=False) as counter:
        step()
    for _ in range(turns):
        comm.barrier()
        before, start = comm.meter.sent_bytes, time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds, comm.meter.sent_bytes - before, int(counter.get_total_flops())


def _once(comm, program, amount, resting):
    """(the rank's clock before a step and after it, bytes that it sends), after one to warm up."""
    step = PROGRAMS[program](comm, amount, resting)
    step()
    comm.barrier()
    sent, before = comm.meter.sent_bytes, comm.clock()
    step()
    return before, comm.clock(), comm.meter.sent_bytes - sent
