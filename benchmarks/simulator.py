"""How fast imagined time passes: all-reduces and a step of training, message by message."""

import functools
import resource
import time

import torch
from torch import nn

from benchmarks.report import GB, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns
from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, FREE
from course.collectives import all_reduce
from course.parallel.data import DataParallel
from course.worlds import run, simulated

ALL_REDUCE, STEP = "all-reduce", "data-parallel step"
AIMS = {  # seconds
    (ALL_REDUCE, "ring", 256): Aim("≤", 2.0),
    (ALL_REDUCE, "ring", 1024): Aim("≤", 40.0),
    (ALL_REDUCE, "halving_doubling", 1024): Aim("≤", 2.0),
    (STEP, "halving_doubling", 1024): Aim("≤", 3.0),
}
OFTEN = [(ALL_REDUCE, "ring", 64), (ALL_REDUCE, "ring", 256),
         (ALL_REDUCE, "halving_doubling", 1024)]  # fmt: skip
ONCE = [(STEP, "halving_doubling", 1024), (ALL_REDUCE, "ring", 1024)]


def measure(turns, *, often=OFTEN, once=ONCE) -> Table:
    """A row for every algorithm and number of ranks; those of `once` take one turn only."""
    calls = {job: functools.partial(cpu_seconds, *job) for job in (*often, *once)}
    times = in_turns({job: calls[job] for job in often}, turns)
    times |= {job: [calls[job]()] for job in once}
    return Table("Imagined ranks", [row(*job, times[job]) for job in times], NOTE)


NOTE = """One segment a chunk, unchecked, not traced. ratio = seconds of one core; GB = the most \
memory this process has had so far."""


def row(call, algorithm, p, times) -> dict:
    ratio = Ratio.of([seconds for seconds, _ in times], [1.0] * len(times))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB
    messages = times[0][1]
    columns = {"call": call, "algorithm": algorithm, "ranks": p, "messages": messages}
    columns["GB"] = f"{memory:.2f}"
    columns["us a message"] = f"{1e6 * ratio.median / messages:.1f}"
    return columns | judged(ratio, AIMS.get((call, algorithm, p), Aim()))


def cpu_seconds(call, algorithm, p) -> tuple:
    """Of one run, and how many messages it had."""
    world, start = simulated(one_switch(p, FREE, EDR), device="meta"), time.process_time()
    sent = run(CALLS[call], p, algorithm, on=world, checked=False)
    return time.process_time() - start, sum(sent)


def reduce_once(comm, algorithm):
    all_reduce(comm, torch.empty(1000 * comm.size, device=comm.device), algorithm=algorithm)
    return comm.meter.sent_messages


def train_once(comm, algorithm):
    """Forward and backward of 1.6 million weights."""
    with torch.device(comm.device):
        layers = [nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh()]
        net, x = nn.Sequential(*layers, nn.Linear(1024, 10)), torch.empty(32, 512)
    DataParallel(net, comm, algorithm=algorithm)(x).square().mean().backward()
    return comm.meter.sent_messages


CALLS = {ALL_REDUCE: reduce_once, STEP: train_once}
