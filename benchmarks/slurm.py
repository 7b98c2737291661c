"""Ranks on nodes that Slurm allots, against the same ranks on hosts in a box: both over 1 Gb/s."""

import os
import statistics
from unittest import mock

import torch

from benchmarks.report import MB, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, race, seconds
from course.collectives import all_reduce
from course.worlds import hosts, run, slurm
from tests.slurm_box import SlurmBox, missing

TITLE, RANKS, RATE, SIZE_MB = "On nodes of Slurm", 4, "1gbit", 16
AIMS = {"all-reduce": Aim("≥", 0.9), "run": Aim("≤", 1.0)}


def measure(turns) -> Table:
    """A row for an all-reduce, one for a run; no more than five turns."""
    if why := missing():
        return Table(TITLE, [{"not measured": why}])
    turns = min(turns, 5)
    with (
        SlurmBox(nodes=RANKS, rate=RATE, cpus=1) as box,
        mock.patch.dict(os.environ, box.environment),
    ):
        there = slurm(nodes=RANKS)
        return Table(TITLE, [all_reduces(there, turns), runs(there, turns)], NOTE)


NOTE = f"""A Slurm of {RANKS} nodes in network namespaces, each with a link of {RATE}, one rank a \
node. all-reduce: {SIZE_MB} MB of float32, unchecked; ratio = the time on hosts({RANKS}, \
rate="{RATE}") / the time on slurm(nodes={RANKS}). run: a small all-reduce by run() on nodes that \
are held from the run before; ratio = its seconds."""


def all_reduces(there, turns) -> dict:
    """The same messages over cables of the same rate."""
    worlds = {"hosts": hosts(RANKS, rate=RATE), "slurm": there}
    calls = {name: lambda on=on: race(contestants, RANKS, 1, on=on) for name, on in worlds.items()}
    found = in_turns(calls, turns).items()
    times = {name: [raced["all-reduce"][0] for raced in each] for name, each in found}
    return row("all-reduce", times["slurm"], Ratio.of(times["hosts"], times["slurm"]))


def contestants(comm) -> dict:
    x = torch.zeros(SIZE_MB * MB // 4)
    return {"all-reduce": lambda: all_reduce(comm, x)}


def runs(there, turns) -> dict:
    """Those after the first."""
    times = in_turns({"run": lambda: seconds(lambda: run(program, RANKS, on=there))}, turns)["run"]
    return row("run", times, Ratio.of(times, [1.0] * turns))


def program(comm):
    x = torch.ones(1000)
    all_reduce(comm, x)
    assert x.tolist() == [comm.size] * 1000


def row(what, times, ratio) -> dict:
    return {"what": what, "seconds": f"{statistics.median(times):.2f}"} | judged(ratio, AIMS[what])
