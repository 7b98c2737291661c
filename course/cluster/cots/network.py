"""Coates et al. 2013 again: nine layers of 185 million to 11.2 billion weights on 1 to 64 GPUs.

What runs is the network of `course.learning.nine_layers`, cut over a square grid of ranks: forward,
backward and update, on shapes alone.  What is published: numbers of GPUs and of weights, a speed-up
of 47 on 64 GPUs, and that a step of the largest network takes about as long as one of the smallest.
What is lost: fields, strides, maps, and all times.  So the sizes here are chosen: fields of 11
pixels and blocks of 3 x 3 neurons that share one, which makes 64, 60 and 56 windows along the sides
of the stages, for 8 ranks to divide; and as many maps as it takes, in all stages nearly alike.
"""

import itertools
import math

import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, GTX_680
from course.learning.nine_layers import Geometry, NineLayers, Norm, Plan, fine_tune
from course.learning.nine_layers.plan import sizes
from course.parallel.array import part
from course.parallel.spatial.untied import cut_untied
from course.worlds import run, simulated

# GPUs and weights: seed C, K (weights), memory M (which number of GPUs had which).
PUBLISHED = {1: 185e6, 4: 680e6, 9: 1.9e9, 16: 3.0e9, 36: 6.9e9, 64: 11.2e9}
BATCH, SIDE, CHANNELS = 96, 200, 3  # memory M
TOLERANCE = 0.01


def weights(plan) -> int:
    """How many weights a Plan has."""
    return sum(size.weights for size in sizes(plan))


def plan_for(wanted, field=11, block=3) -> Plan:
    """Nine layers of `wanted` weights, to 1 %: the numbers of maps of its stages differ by one at
    most.

    Raises ValueError if none has so many.
    """
    largest = next(m for m in itertools.count(1) if weights(_plan((m,) * 3, field, block)) > wanted)
    near = range(max(1, largest - 1), largest + 1)
    plans = [_plan(maps, field, block) for maps in itertools.product(near, repeat=3)]
    best = min(plans, key=lambda plan: abs(weights(plan) - wanted))
    if abs(weights(best) / wanted - 1) > TOLERANCE:
        raise ValueError(
            f"with fields of {field} and blocks of {block} no network has {wanted:,.0f} weights "
            f"to 1 %: the nearest has {weights(best):,}"
        )
    return best


def _plan(maps, field, block) -> Plan:
    stages = (Geometry(field, block, m, 0.1, 5, 1, Norm(5, 1.0, 0.01), block) for m in maps)
    return Plan(CHANNELS, SIDE, None, tuple(stages))


def fine_tuning_step(comm, plan, batch=BATCH):
    """Forward, backward and update of the fine-tuning gradient, on a square grid of ranks."""
    grid = (math.isqrt(comm.size),) * 2
    with torch.device(comm.device):
        net = NineLayers(plan, seed=0)
        images = torch.empty(batch, plan.channels, plan.side, plan.side)
    net = cut_untied(net, comm, grid)
    fine_tune(net, part(comm, images, (1, 1, *grid)), torch.sum, 0.01)


def record_step(plan, cards, batch=BATCH):
    """What `cards` ranks compute and send in one step: a Recording, for `simulated(...).replay`.

    Raises ValueError if the cards make no square, or their memory does not hold the weights.
    """
    side = math.isqrt(cards)
    if side**2 != cards:
        raise ValueError(f"a square grid has 1, 4, 9, ... cards, not {cards}")
    _check_memory(plan, side)
    world = simulated(one_switch(cards, GTX_680, FDR), device="meta", record=True)
    run(fine_tuning_step, cards, plan, batch, on=world, checked=False, timeout=None)
    return world.recording


def _check_memory(plan, side):
    """Weights and their gradient alone must fit the fullest card, that of rank 0."""
    share = 0
    for size, geometry in zip(sizes(plan), plan.stages):
        windows = size.simple_side // geometry.block
        share += size.weights * (math.ceil(windows / side) / windows) ** 2
    if 8 * share > GTX_680.memory_bytes:
        raise ValueError(
            f"rank 0 of {side} x {side} holds {share / 1e6:,.0f} million weights: with their "
            f"gradient {8 * share / 1e9:.1f} GB, and a {GTX_680.name} has "
            f"{GTX_680.memory_bytes / 1e9:g} GB"
        )
