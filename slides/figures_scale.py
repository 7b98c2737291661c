"""The figures of part IV, each by a function of its name.

As `figures.py`: what the package draws, at the size of a slide.  Times are simulated or predicted;
one program learns when they are built, and what it shows is not a time.
"""

import functools

import torch

from course.classroom import figures
from course.classroom.drawings import fabric, lines, memory, offers, placement, speedup, waste
from course.cluster import storage
from course.cluster.fabric import dgx_large, fat_tree, one_switch
from course.cluster.failover.failures import node_gaps, simulate
from course.cluster.failover.interval import young
from course.cluster.hardware import EDR, FREE, P100, PCIE_3
from course.cluster.loads import link_loads
from course.cluster.mapping import contiguous
from course.cluster.placement import by_brute_force, schedule, traced
from course.cluster.placement.networks import Inception
from course.cluster.planning import (
    A100_ETHERNET,
    DGX_A100,
    DGX_H100,
    Assumptions,
    Budget,
    Plan,
    Transformer,
    search,
    usable_bytes,
)
from course.cluster.planning import memory as memory_of
from course.cluster.scaling.laws import Law
from course.learning.acquisition.picks import highest
from course.learning.acquisition.scores import margin
from course.learning.training.digits import SEEDS, backward, digit_net, digit_split, judge


def two_laws():
    """What ranks are worth by two laws, if one part in twenty is serial."""
    laws = {name: Law(name, 0.05).speedup for name in ("Amdahl", "Gustafson")}
    strong, weak = (law(64) for law in laws.values())
    title = f"One part in 20 is serial: 64 ranks are worth {strong:.0f}, or {weak:.0f}"
    return speedup.draw({}, title, curves=laws, ranks=(1, 2, 4, 8, 16, 32, 64))


def pods():
    """A cluster of four pods: 24 racks, their power, and the cables from switch to switch."""
    return fabric.racks(dgx_large(), "144 servers of 8 GPUs in four pods; half as wide above a pod")


def placements():
    """One ring of 16 ranks on one tree of switches, placed in two ways: the busiest link carries
    one message, or two."""
    tree = fat_tree(4, 4, FREE, EDR, oversubscription=2)
    turns = [4 * leaf + number for number in range(4) for leaf in range(4)]
    places = {"contiguous": contiguous(tree, 16), "round robin": contiguous(tree, 16, turns)}
    ring = [(rank, (rank + 1) % 16, 1) for rank in range(16)]
    panels = figures.panels(2, 4.8, 3.8)
    for axes, (name, place) in zip(panels, places.items(), strict=True):
        carried = link_loads(tree, ring, place)
        ranks = {device: rank for rank, device in enumerate(place)}
        title = f"{name}: the busiest link carries {max(carried.values())}"
        fabric.loads(tree, carried, title, names=ranks, axes=axes)
    return panels


def starving():
    """The share of a step in which GPUs wait for data, by the servers that read from one file
    system: files starve them first, shards later, copies on own disks last."""
    shared = storage.Store("chosen", 20e3, 10e9, 2.5e9, "an assumption")
    files = storage.Demand(512, 512 * 110e3, decode_s=0.35, compute_s=512 / 5377)
    shards = files._replace(opens=0.5)
    kept = {"files": files, "shards": shards, "shards, half\non own disk": shards.missed(0.5)}
    nodes, shares = range(1, 37), {}
    for name, demand in kept.items():
        longest = [max(storage.step_limits_s(demand, shared, n, 8).values()) for n in nodes]
        shares[name] = nodes, [1 - demand.compute_s / each for each in longest]
    words = "servers in the pod", "the GPUs wait (share of a step)"
    return lines.draw(shares, "One shared file system, of chosen speed", *words, limits=(0, 1))


def placed():
    """The operations of a block of four branches on two imagined cards, and what crosses."""
    graph = traced(Inception().eval(), torch.zeros(32, 192, 28, 28))
    machine = one_switch(2, P100, PCIE_3)
    best = schedule(graph, by_brute_force(graph, machine), machine)
    title = f"The best of all placements on two P100 over PCIe: {1e3 * best.seconds:.2f} ms"
    return placement.draw(best, title)


def how_often():
    """The waste of a job by the minutes between two saves: a flat valley, and simulated jobs."""
    save_s, mtbf_s, restart_s = 300, 3600 * 8.76, 600
    best, jobs = young(save_s, mtbf_s), {}
    for share in (1 / 4, 1 / 2, 1, 2, 4):
        gaps = [node_gaps(3600 * 8760, 1000, seed) for seed in range(20)]
        runs = [simulate(3600 * 72, share * best, save_s, restart_s, each) for each in gaps]
        jobs[share * best] = [each.waste for each in runs]
    title = "1,000 nodes, a failure every 8.76 hours, saves of 5 minutes"
    return waste.draw(save_s, mtbf_s, restart_s, title, jobs=jobs)


def labels_saved():
    """Wrong test images by labels bought: what the predictor asks for teaches more than chance."""
    torch.set_num_threads(1)  # the networks are small: a second thread would only wait
    shown, dots = {}, {}
    for name in ("random", "margin"):
        found = torch.tensor([_engine(name, seed) for seed in SEEDS[:3]])
        labels = [20 * round_ for round_ in range(1, found.shape[1] + 1)]
        shown[name] = labels, found.mean(dim=0)
        dots[name] = labels * len(found), found.flatten()
    words = "labels bought", "wrong test images (%)"
    axes = lines.draw(shown, "1,024 digits, 20 labels a round, three seeds", *words, dots=dots)
    axes.set_ylim(bottom=0)
    return axes


def _engine(name, seed, rounds=7, k=20):
    """The test error in per cent after each round of training and of buying k labels."""
    split, chance, errors = _digits(), torch.Generator().manual_seed(seed), []
    rows = torch.randperm(len(split.training.x), generator=chance)[:k]
    for _ in range(rounds):
        net = digit_net(seed).double()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
        for _ in range(150):
            backward(net, split.training.x[rows], split.training.y[rows])
            optimizer.step()
        errors.append(100 * judge(net, split.test).error)
        every = torch.arange(len(split.training.x))
        rest = every[~torch.isin(every, rows)]
        with torch.no_grad():
            doubt = -margin(net(split.training.x[rest]).softmax(dim=1))
        scores = doubt if name == "margin" else torch.rand(len(rest), generator=chance)
        rows = torch.cat([rows, rest[highest(scores, k)]])
    return errors


@functools.cache
def _digits():
    return digit_split(torch.float64)


NETWORK = Transformer(features=12288, heads=96, blocks=4, length=2048)


def cuts_of_a_plan():
    """Gigabytes on the fullest card for five ways to cut one network over the same 32 cards, and
    what may be used of a card: two of them fit."""
    naive = Plan(NETWORK, DGX_A100, nodes=4, data=32, rows=256, micro_batches=8)
    cuts = {"data 32": naive, "data 32, sharded": naive.changed(sharded=True),
            "data 8, tensor 4, sharded": naive.changed(data=8, tensor=4, sharded=True),
            "data 4, pipeline 2, tensor 4": naive.changed(data=4, pipeline=2, tensor=4),
            "pipeline 4, tensor 8": naive.changed(data=1, pipeline=4, tensor=8)}  # fmt: skip
    rows = {}
    for name, plan in cuts.items():
        full = max(memory_of(plan), key=lambda stage: stage.total)
        parts = full.kept._asdict() | {"activations": full.activations}
        rows[name] = {part: nbytes / 1e9 for part, nbytes in parts.items()}
    title = "7.3 billion weights on 32 cards, by formula"
    marks = {"may be used: 34": usable_bytes(DGX_A100) / 1e9, "a card: 40": 40}
    return memory.draw(rows, title, "GB on the fullest card", marks=marks)


def within_budget():
    """Money against days of every plan, by kind of server, and the corner that a budget leaves."""
    assumed = Assumptions(achieved=0.6, letters=20 * NETWORK.weights,
                          prices={"A100": 1.2, "A100, 10 Gb/s": 0.9, "H100": 4.0})  # fmt: skip
    choice = {DGX_A100: (2, 4), A100_ETHERNET: (2, 4), DGX_H100: (1, 2, 4)}
    budget = Budget(money=18_000, watts=30_000, days=13.8)
    title = "Every way to cut by powers of two, by formula"
    return offers.draw(search(NETWORK, choice, assumed, 256), budget, title, unit="coins")
