"""Cut images: a convolution over slow cables against what it computes and what it fetches, and a
step of the nine layers against one process."""

import functools
import statistics

import torch
from torch.nn.functional import conv2d

from benchmarks.report import Aim, Table, judged
from benchmarks.turns import Ratio, race
from course.learning.nine_layers import Geometry, NineLayers, Norm, Plan, fine_tune
from course.parallel.array import Box, DistributedArray, evenly, part
from course.parallel.spatial.untied import cut_untied
from course.worlds import hosts
from course.worlds.cores import cores

SIDE, CHANNELS, KERNEL, GRID = 2048, 4, 9, (2, 2)
PLAN = Plan(3, 72, None, tuple(
    Geometry(9, 3, 6, 0.1, 3, 1, Norm(5, 1.0, 0.01), 3) for _ in range(3)
))  # fmt: skip
HIDDEN, AS_FAST = Aim("≤", 1.1), Aim("≥", 0.9)


def measure(turns) -> Table:
    """A convolution of a large photograph on four hosts; then the nine layers on one machine."""
    times = race(convolvers, 4, turns, on=hosts(4, 1, "1gbit"))
    should = [max(pair) for pair in zip(times["computing"], times["halos"])]
    rows = [row("4 x 1 Gb/s", f"convolution, {name}", times[name], Ratio.of(times[name], should),
                aim)
            for name, aim in (("overlapped", HIDDEN), ("one after another", Aim()))]  # fmt: skip
    times = race(nine_layers, 4, turns)
    ratio = Ratio.of(times["one process"], times["cut"])
    rows.append(row("4 x one machine", "nine layers, 2 x 2", times["cut"], ratio, AS_FAST))
    return Table("Cut images", rows, NOTE)


NOTE = f"""float32, unchecked.  convolution: {CHANNELS} to {CHANNELS} channels of {SIDE} x {SIDE} \
pixels, {KERNEL} x {KERNEL}, on 2 x 2 tiles; ratio = time / max(computing alone, halos alone).  \
A halo is on the wire for about a millisecond, so there is little to hide: the ratio shows what \
slabs, and one copy of the answers, cost beside the convolution.  \
nine layers: forward, backward and update of 32 images; ratio = time of one process with a thread \
for every core / time of four ranks with one thread each."""


def row(place, what, seconds, ratio, aim) -> dict:
    columns = {"ranks": place, "what": what, "ms": f"{1e3 * statistics.median(seconds):.1f}"}
    return columns | judged(ratio, aim)


def convolvers(comm) -> dict:
    torch.manual_seed(0)
    layout, margin = evenly((1, CHANNELS, SIDE, SIDE), (1, 1, *GRID)), KERNEL // 2
    x = DistributedArray(comm, torch.randn(layout.box(comm.rank).shape), layout)
    filters = torch.randn(CHANNELS, CHANNELS, KERNEL, KERNEL)
    regions = [wider(box, margin) for box in layout.boxes()]
    seen = torch.randn(regions[comm.rank].shape)

    def one_after_another():
        return conv2d(x.fetch(regions), filters)

    return {
        "computing": lambda: conv2d(seen, filters),
        "halos": lambda: x.fetch(regions),
        "overlapped": lambda: conv2d(x, filters, padding=margin),
        "one after another": one_after_another,
    }


def wider(box, margin) -> Box:
    """`box` with `margin` pixels more on each side of its last two axes."""
    *front, rows, columns = box.intervals
    return Box.of(*front, *((low - margin, high + margin) for low, high in (rows, columns)))


def nine_layers(comm) -> dict:
    torch.manual_seed(0)
    images = torch.randn(32, PLAN.channels, PLAN.side, PLAN.side)
    whole = step(NineLayers(PLAN, seed=0), images)
    mine = part(comm, images, (1, 1, *GRID))
    return {
        "one process": lambda: comm.rank == 0 and with_threads(cores(), whole),
        "cut": step(cut_untied(NineLayers(PLAN, seed=0), comm, GRID), mine),
    }


def step(net, images):
    return functools.partial(fine_tune, net, images, torch.sum, 1e-6)


def with_threads(count, call):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        call()
    finally:
        torch.set_num_threads(before)
