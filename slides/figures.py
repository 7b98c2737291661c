"""The figures of the slides, each by a function of its name: what the package draws, at their size.

Nothing here is measured: what depends on a machine is in the notebooks.
"""

import functools

import torch

from course.classroom import cuts, figures, graphs, player
from course.classroom.drawings import card, layer_cut, lines, race
from course.cluster import fabric, hardware
from course.collectives import all_reduce, cost
from course.collectives.tree import binomial_tree
from course.comm import Trace
from course.parallel.gossip import topology
from course.parallel.gossip.topology import metropolis, steps_to_agree
from course.worlds import run, simulated

OFFICE = hardware.ETHERNET_1G


def _figure(drawn):
    """The figure that a function of the package has drawn in."""
    drawn = list(drawn.values()) if isinstance(drawn, dict) else drawn
    return drawn.figure if hasattr(drawn, "figure") else drawn[0].figure


# Part II


def three_cuts():
    """The work of training as a box, cut in three directions."""
    return _figure(cuts.draw())


def layer_in_two():
    """One layer, two ranks, and what each sends."""
    return _figure(layer_cut.draw())


def two_numbers():
    """The bandwidth that messages reach, by their size, over three cables."""
    sizes = [2**k for k in range(4, 31)]
    cables = hardware.ETHERNET_1G, hardware.ETHERNET_10G, hardware.NDR
    reached = {}
    for cable in cables:
        rates = [n / (cable.latency_s + n / cable.bytes_per_s) / 1e9 for n in sizes]
        reached[cable.name] = sizes, rates
    title = "Short messages pay for latency, long ones for bytes"
    text = title, "message (bytes)", "bandwidth reached (GB/s), by the formula"
    return _figure(lines.draw(reached, *text, log="xy"))


def thirty_seconds():
    """A billion parameters, by what is assumed."""
    plain = 1e9 * 4 * 8 / 1e9  # parameters, bytes, bits; bits a second
    assumed = {
        "4 bytes each, one way, 1 Gb/s": plain,
        "2 bytes each": plain / 2,
        "gradients there, weights back": 2 * plain,
        "in a ring of 16 machines": plain * 2 * 15 / 16,
        "10 Gb/s Ethernet": plain / 10,
        "FDR InfiniBand, 54.5 Gb/s": plain / 54.5,
    }
    title = "One billion parameters: the seconds, by what is assumed"
    return _figure(figures.bars(assumed, title, "time (s)"))


def four_collectives():
    """Those that hand out and collect: what each rank holds before and after."""
    return _figure(card.draw(run(card.all_eight, 4), list(card.WHAT)[:4]))


def other_four():
    """Those whose result is everywhere."""
    return _figure(card.draw(run(card.all_eight, 4), list(card.WHAT)[4:]))


def broadcast_tree():
    """A broadcast among 8 ranks in 3 steps."""
    axes = figures.panels(1, width=7.0, height=3.6)[0]
    plan = player.planned(binomial_tree(8))
    title = "The ranks that have it double: 8 ranks in 3 steps"
    return _figure(player.rounds(plan, 8, title, axes))


def four_sums():
    """What four all-reduces of 960 bytes send among 8 ranks."""
    names = "tree", "recursive_doubling", "halving_doubling", "ring"
    panels = figures.panels(4, width=3.2, height=5.2)
    for name, axes in zip(names, panels, strict=True):
        sent = _messages(name)
        steps, total = max(m.step for m in sent), sum(m.bytes for m in sent)
        title = f"{name}: {steps} steps, {total:,} bytes"
        player.rounds(sent, 8, title, axes, full=960).get_legend().remove()
    return panels[0].figure


def _messages(algorithm):
    trace, world = Trace(), simulated(fabric.one_switch(8, hardware.FREE, hardware.NDR))
    by_it = functools.partial(all_reduce, algorithm=algorithm)
    run(lambda comm: by_it(comm, torch.ones(240)), 8, on=world, trace=trace)
    return trace.messages


def who_is_fastest():
    """Predicted times of the all-reduces on 64 ranks."""
    sizes = [round(10 ** (k / 10) / 4) * 4 for k in range(30, 81)]
    found = {}
    for size in sizes:
        for name, price in cost.all_reduces(64, size // 4, 4).items():
            took = price.seconds(OFFICE.latency_s, 1 / OFFICE.bytes_per_s)
            known = found.setdefault(name, ([], []))
            known[0].append(size), known[1].append(took)
    title = "64 ranks over 1 Gb/s: which is fastest depends on the size"
    return _figure(race.draw(found, title, "vector (bytes)", "time, predicted (s)"))


def five_graphs():
    """Who talks to whom, among twelve ranks."""
    kinds = {
        "random": topology.random_regular_graph(12, 4, seed=0),
        "ring": topology.ring_graph(12),
        "wheel": topology.wheel_graph(12),
        "star": topology.star_graph(12),
        "complete": topology.complete_graph(12),
    }
    panels = figures.panels(5, 2.8, 3.1)
    for axes, (name, graph) in zip(panels, kinds.items(), strict=True):
        near = sorted({len(each) for each in graph.neighbours})
        graphs.network(graph, f"{name}: {' or '.join(map(str, near))} neighbours", axes=axes)
    return panels[0].figure


def rounds_to_agree():
    """Rounds of gossip until a thousandth is left, by ranks, on three graphs."""
    counts = [8, 16, 32, 64, 128, 256]
    kinds = {
        "ring": topology.ring_graph,
        "random": lambda p: topology.random_regular_graph(p, 4, 0),
    }
    rows = {name: (counts, [steps_to_agree(metropolis(graph(p)), 1e-3) for p in counts])
            for name, graph in kinds.items()}  # fmt: skip
    rows["one-peer"] = counts, [graphs.one_peer_rounds(p, 1e-3) for p in counts]
    title = "Rounds until a thousandth of the disagreement is left"
    return _figure(lines.draw(rows, title, "ranks", "rounds", log="xy"))
