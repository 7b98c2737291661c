"""How fast imagined time passes: all-reduces on the meta device, message by message."""

import functools
import resource
import time

import torch

from benchmarks.report import GB, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns
from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, FREE
from course.collectives import all_reduce
from course.worlds import run, simulated

AIMS = {  # seconds
    ("ring", 256): Aim("≤", 2.0),
    ("ring", 1024): Aim("≤", 40.0),
    ("halving_doubling", 1024): Aim("≤", 2.0),
}
OFTEN = [("ring", 64), ("ring", 256), ("halving_doubling", 1024)]


def measure(turns, *, often=OFTEN, once=(("ring", 1024),)) -> Table:
    """A row for every algorithm and number of ranks; those of `once` take one turn only."""
    calls = {job: functools.partial(cpu_seconds, *job) for job in (*often, *once)}
    times = in_turns({job: calls[job] for job in often}, turns)
    times |= {job: [calls[job]()] for job in once}
    return Table("Imagined all-reduce", [row(*job, times[job]) for job in times], NOTE)


NOTE = """One segment a chunk, unchecked, not traced. ratio = seconds of one core; GB = the most \
memory this process has had so far."""


def row(algorithm, p, times) -> dict:
    ratio = Ratio.of([seconds for seconds, _ in times], [1.0] * len(times))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB
    messages = times[0][1]
    columns = {"algorithm": algorithm, "ranks": p, "messages": messages, "GB": f"{memory:.2f}"}
    columns["us a message"] = f"{1e6 * ratio.median / messages:.1f}"
    return columns | judged(ratio, AIMS.get((algorithm, p), Aim()))


def cpu_seconds(algorithm, p) -> tuple:
    """Of one run, and how many messages it had."""
    world, start = simulated(one_switch(p, FREE, EDR), device="meta"), time.process_time()
    sent = run(reduce_once, p, algorithm, 1000 * p, on=world, checked=False)
    return time.process_time() - start, sum(sent)


def reduce_once(comm, algorithm, elements):
    all_reduce(comm, torch.empty(elements, device=comm.device), algorithm=algorithm)
    return comm.meter.sent_messages
