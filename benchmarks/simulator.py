"""How fast imagined time passes: a ring all-reduce on the meta device, message by message."""

import functools
import resource

import torch

from benchmarks.report import GB, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, seconds
from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, FREE
from course.collectives import all_reduce
from course.comm import run
from course.comm.simulator import simulated

AIMS = {256: Aim("≤", 2.0), 1024: Aim("≤", 40.0)}  # seconds, by ranks


def measure(turns, *, sizes=(64, 256), once=(1024,)) -> Table:
    """A row for every number of ranks; those of `once` take one turn only."""
    worlds = {p: simulated(one_switch(p, FREE, EDR), device="meta") for p in (*sizes, *once)}
    calls = {p: functools.partial(seconds, functools.partial(ring, p, worlds[p])) for p in worlds}
    times = in_turns({p: calls[p] for p in sizes}, turns) | {p: [calls[p]()] for p in once}
    return Table("Imagined ring all-reduce", [row(p, times[p]) for p in times], NOTE)


NOTE = """One segment a chunk, unchecked, not traced, one core. ratio = seconds; GB = the most \
memory this process has had so far."""


def row(p, times) -> dict:
    messages, ratio = 2 * p * (p - 1), Ratio.of(times, [1.0] * len(times))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB
    columns = {"ranks": p, "messages": messages, "GB": f"{memory:.2f}"}
    columns["us a message"] = f"{1e6 * ratio.median / messages:.1f}"
    return columns | judged(ratio, AIMS.get(p, Aim()))


def ring(p, world):
    run(reduce_once, p, 1000 * p, on=world, checked=False)


def reduce_once(comm, elements):
    all_reduce(comm, torch.empty(elements, device=comm.device))
