"""The figures of the slides, each by a function of its name: what the package draws, at their size.

Nothing here is measured: what depends on a machine is in the notebooks.
"""

import functools

import torch

from course.classroom import cuts, figures, player
from course.classroom.drawings import layer_cut, race
from course.cluster import fabric, hardware
from course.collectives import all_reduce, cost
from course.collectives.tree import binomial_tree
from course.comm import Trace
from course.worlds import run, simulated

CABLE = hardware.ETHERNET_1G


def three_cuts():
    """The work of training as a box, cut in three directions."""
    return cuts.draw()[0].figure


def layer_in_two():
    """One layer, two ranks, and what each sends."""
    return _of(layer_cut.draw())


def _of(drawn):
    """The figure of what a function of the package has drawn."""
    return (drawn if hasattr(drawn, "figure") else drawn[0]).figure


def broadcast_tree():
    """A broadcast among 8 ranks in 3 steps."""
    axes = figures.panels(1, width=7.0, height=3.6)[0]
    plan = player.planned(binomial_tree(8))
    return player.rounds(plan, 8, "The ranks that have it double: 8 ranks in 3 steps", axes).figure


def four_sums():
    """What four all-reduces of 960 bytes send among 8 ranks."""
    names = "tree", "recursive_doubling", "halving_doubling", "ring"
    panels = figures.panels(4, width=3.2, height=5.2)
    for name, axes in zip(names, panels, strict=True):
        sent = _messages(name)
        steps, total = max(m.step for m in sent), sum(m.bytes for m in sent)
        title = f"{name}: {steps} steps, {total:,} bytes"
        player.rounds(sent, 8, title, axes, full=960)
    return panels[0].figure


def _messages(algorithm):
    trace, world = Trace(), simulated(fabric.one_switch(8, hardware.FREE, hardware.NDR))
    by_it = functools.partial(all_reduce, algorithm=algorithm)
    run(lambda comm: by_it(comm, torch.ones(240)), 8, on=world, trace=trace)
    return trace.messages


def who_is_fastest():
    """Predicted times of the all-reduces on 64 ranks."""
    sizes = [round(10 ** (k / 10) / 4) * 4 for k in range(30, 81)]
    lines = {}
    for size in sizes:
        for name, price in cost.all_reduces(64, size // 4, 4).items():
            took = price.seconds(CABLE.latency_s, 1 / CABLE.bytes_per_s)
            lines.setdefault(name, ([], []))[0].append(size)
            lines[name][1].append(took)
    title = "64 ranks over 1 Gb/s: which is fastest depends on the size"
    return race.draw(lines, title, "vector (bytes)", "time, predicted (s)").figure
