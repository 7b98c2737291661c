"""Steps of a network on shards, imagined, and a picture of how long they take by rows of a batch.

Eight Tesla P100s train eight layers of 1,024 x 1,024 weights without biases by plain SGD.
"""

import torch
from torch import nn

from course import worlds
from course.classroom.drawings import lines, prefetch
from course.cluster import fabric, hardware
from course.parallel.sharded import Sharded

RANKS, LAYERS, WIDTH = 8, 8, 1024


def two_steps(cable, stage, rows, trace=None) -> list:
    """Rank 0's first and second step in a `stage`, with so many rows on each rank: what it
    computes, pieces in seconds, and when the step began and ended."""
    cluster = fabric.one_switch(RANKS, hardware.P100, cable)
    world = worlds.simulated(cluster, device="meta")
    return worlds.run(_train_twice, RANKS, stage, rows, on=world, checked=False, trace=trace)[0]


def _train_twice(comm, stage, rows):
    layers = [nn.Linear(WIDTH, WIDTH, bias=False, device=comm.device) for _ in range(LAYERS)]
    net, found = Sharded(nn.Sequential(*layers), comm, stage=stage), []
    optimizer, pieces = net.optimizer(torch.optim.SGD, lr=0.1), prefetch.watch(layers, comm.clock)
    for _ in range(2):
        pieces.clear()
        start, x = comm.clock(), torch.empty(rows, WIDTH, device=comm.device, requires_grad=True)
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        found.append((list(pieces), start, comm.clock()))
    return found


def in_arithmetic(cable, stage, rows) -> float:
    """How long the second step takes, in units of its arithmetic alone at the card's peak."""
    _, start, end = two_steps(cable, stage, rows)[1]
    return (end - start) * hardware.P100.flops_per_s / (6 * LAYERS * WIDTH * WIDTH * rows)


def of_formula(stage, r):
    """The same as the formulas say, for gathers of `r` times a layer's forward: a tensor."""
    return (1 + r.clamp(min=2) + r) / 3 if stage == 2 else r.clamp(min=1)


def draw(rows, found, enough):
    """Times `found` {name: by rows} of stages 2 and 3, as dots, on the lines of the formulas; at
    `enough` rows r is 1.  Returns the axes."""
    dense = torch.logspace(*torch.tensor([rows[0], rows[-1]]).log2().tolist(), 101, base=2)
    curves = {f"stage {n}": (dense, of_formula(n, enough / dense)) for n in (2, 3)}
    small, large = (found["stage 3"][at] / found["stage 2"][at] for at in (0, -1))
    answer = f"Simulated: stage 3 takes {small:.2f} times stage 2 with {rows[0]:,} rows, "
    answer += f"{large:.2f} times with {rows[-1]:,}"
    dots = {name: (rows, times) for name, times in found.items()}
    axes = lines.draw(curves, answer, "rows of a rank's batch (lines: formula)",
                      "step / its arithmetic", dots=dots, marks={"r = 1": enough},
                      log="xy", limits=(0.8, 6))  # fmt: skip
    axes.set_xticks(rows, [f"{each:,}" for each in rows])
    axes.set_yticks([1, 2, 3, 4, 5], list("12345"))
    axes.minorticks_off()
    return axes
