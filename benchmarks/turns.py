"""Contestants take turns: a busy minute of the machine then strikes all of them, and the ratio
within a turn means more than any number of seconds."""

import functools
import pathlib
import statistics
import time
from typing import NamedTuple

from course.worlds import run


class Ratio(NamedTuple):
    """Of the times of two contestants, turn by turn."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, above: list, below: list):
        """above / below, both in seconds, a turn each."""
        ratios = [a / b for a, b in zip(above, below, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


class Stolen:
    """With it, the part of the cores' time that a virtual machine was denied meanwhile, as text."""

    def __init__(self, told=pathlib.Path("/proc/stat")):
        self.told, self.share = told, None

    def __enter__(self):
        self.before = self._ticks()
        return self

    def __exit__(self, *_):
        if self.before:
            spent = [after - before for before, after in zip(self.before, self._ticks())]
            *_, steal = spent  # behind user, nice, system, idle, iowait, irq, softirq
            self.share = steal / max(1, sum(spent))

    def __str__(self):
        return "not told" if self.share is None else f"{self.share:.1%}"

    def _ticks(self) -> list:
        if not self.told.exists():
            return []
        return [int(count) for count in self.told.read_text().partition("\n")[0].split()[1:9]]


def in_turns(contestants: dict, turns: int) -> dict:
    """{name: what it returned in each turn}; every turn the next one begins.

    A turn before the first warms up and is not counted.
    """
    names, returned = list(contestants), {name: [] for name in contestants}
    for turn in range(-1, turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            value = contestants[name]()
            if turn >= 0:
                returned[name].append(value)
    return returned


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def race(make, ranks: int, turns: int, *args, on=None) -> dict:
    """{name: seconds in each turn} of the contestants {name: call} that `make(comm, *args)`
    returns on each rank of the world `on`.

    All take turns in one unchecked run, on the same ranks.  A call lasts from the moment the first
    rank begins, after a barrier, until the last has done.
    """
    by_rank = run(_take_turns, ranks, make, turns, *args, on=on, checked=False, timeout=120)
    return {name: [_together(spans) for spans in zip(*(said[name] for said in by_rank))]
            for name in by_rank[0]}  # fmt: skip


def _take_turns(comm, make, turns, *args):
    calls = make(comm, *args).items()
    return in_turns({name: functools.partial(_span, comm, call) for name, call in calls}, turns)


def _span(comm, call):
    comm.barrier()
    start = time.perf_counter()  # one clock for all processes of a machine
    call()
    return start, time.perf_counter()


def _together(spans) -> float:
    starts, ends = zip(*spans)
    return max(ends) - min(starts)
