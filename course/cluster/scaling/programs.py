"""Four real programs, each a step that can be repeated, of an amount of work that can be chosen.

A program is `make(comm, amount, resting) -> step`.  `amount` 1 is the same whatever the number of
ranks (strong scaling); with amount = ranks the work of a rank stays (weak scaling).  `resting`
adds arithmetic of a device that is not there, `work`, to small networks: so many times as much as
lets a step of one rank take 0.2 to 0.5 s.
"""

import math

import torch
from torch import nn

from course.cluster.scaling.work import work
from course.learning.nine_layers import Geometry, NineLayers, Plan, fine_tune
from course.parallel.array import DistributedArray, evenly, part
from course.parallel.data import DataParallel
from course.parallel.pipeline import Pipeline, one_forward_one_backward
from course.parallel.spatial.spatial_parallel import SpatialParallel
from course.parallel.spatial.untied import cut_untied

LAYERS, ROWS, MICRO_BATCHES = 4, 64, 8
ROW_FLOPS = 3e8  # of a layer, forward
NEURON_FLOPS, PIXEL_FLOPS = 5e6, 2e6


class Working(nn.Module):
    """`module`, and for each number that it gives `flops` of arithmetic, forward."""

    def __init__(self, module, flops):
        super().__init__()
        self.module, self.flops = module, flops

    def forward(self, x):
        y = self.module(x)
        if not isinstance(y, DistributedArray):
            return work(y, self.flops * y.numel())
        return DistributedArray(y.comm, work(y.local, self.flops * y.local.numel()), y.layout)


def _layers(count, resting):
    width = 64 if resting else 768
    flops = resting * ROW_FLOPS / width
    return [Working(nn.Sequential(nn.Linear(width, width), nn.ReLU()), flops)
            for _ in range(count)], width  # fmt: skip


def _descend(net, loss):
    """Backward from a loss, and a step of plain descent."""
    loss.backward()
    with torch.no_grad():
        for weight in net.parameters():
            if weight.grad is not None:
                weight.sub_(weight.grad, alpha=1e-6)
                weight.grad = None


def data_parallel(comm, amount, resting):
    """Layers that all ranks have; each takes its share of 64 x `amount` rows."""
    with torch.device(comm.device):
        layers, width = _layers(LAYERS, resting)
        start, stop = evenly((ROWS * amount,), (comm.size,)).box(comm.rank).intervals[0]
        x = torch.ones(stop - start, width)
    net = DataParallel(nn.Sequential(*layers), comm)
    return lambda: _descend(net, net(x).square().mean())


def pipeline(comm, amount, resting):
    """8 x `amount` layers in as many stages as there are ranks; 8 micro-batches."""
    with torch.device(comm.device):
        layers, width = _layers(2 * LAYERS * amount, resting)
        x = torch.ones(ROWS, width)
    cuts = [len(layers) * stage // comm.size for stage in range(comm.size + 1)]
    stages = [nn.Sequential(*layers[a:b]) for a, b in zip(cuts, cuts[1:])]
    schedule = one_forward_one_backward(comm.size, MICRO_BATCHES)
    net = Pipeline(stages, comm, schedule, lambda out: out.square().mean())

    def step():
        net.step(x)
        net.zero_grad()

    return step


def _grid(ranks) -> tuple:
    """Rows and columns of tiles, as square as they can be."""
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return rows, ranks // rows


def nine_layers(comm, amount, resting):
    """The nine layers on tiles of 4 x `amount` images: untied weights stay, borders travel."""
    side, maps, field = (32, 2, 3) if resting else (96, 6, 9)
    plan = Plan(3, side, None, (Geometry(field, 1, maps, 0.1, 3, 1),) * 3)
    with torch.device(comm.device):
        net, images = NineLayers(plan, seed=0), torch.ones(4 * amount, 3, side, side)
    cut_untied(net, comm, grid := _grid(comm.size))
    if resting:
        for stage in net.stages:
            stage.pool = Working(stage.pool, resting * NEURON_FLOPS)
    mine = part(comm, images, (1, 1, *grid))
    return lambda: fine_tune(net, mine, torch.sum, 1e-6)


def spatial(comm, amount, resting):
    """Three convolutions of an image of `amount` x 128 by 128 pixels, cut into tiles."""
    channels, side = (4, 64) if resting else (24, 128)
    flops = resting * PIXEL_FLOPS
    with torch.device(comm.device):
        convolutions = (nn.Conv2d(3 if n == 0 else channels, channels, 5, padding=2)
                        for n in range(3))  # fmt: skip
        layers = nn.Sequential(*(Working(each, flops) for each in convolutions))
        image = torch.ones(1, 3, side * amount, side)
    grid = _grid(comm.size)
    net = SpatialParallel(layers, comm, (grid[1], grid[0]))
    mine = part(comm, image, (1, 1, grid[1], grid[0]))
    return lambda: _descend(net, net(mine).mean())


PROGRAMS = {each.__name__: each for each in (data_parallel, nine_layers, spatial, pipeline)}
