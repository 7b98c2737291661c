"""The figures of part III's second half, where the network itself is cut over ranks.

As `figures.py`: what the package draws, at the size of a slide.  Times are simulated.
"""

import torch
from torch.nn.functional import conv2d

from course.classroom import figures
from course.classroom.drawings import (
    expert_load,
    lines,
    memory,
    prefetch,
    rank_grid,
    schedule,
    shard_steps,
    shown_rows,
    tiles,
)
from course.cluster import fabric, hardware
from course.comm import Trace
from course.learning import images
from course.parallel.array import Box, evenly
from course.parallel.array.pieces import cost
from course.parallel.experts.dispatch import capacity_of, dispatch_plan
from course.parallel.experts.gating import gates
from course.parallel.hybrid import Grid
from course.parallel.hybrid.weird_trick import rounds
from course.parallel.pipeline import gpipe, one_forward_one_backward, simulate, zero_bubble
from course.parallel.sharded.account import account
from course.worlds import run, simulated


def halo():
    """A photograph in four tiles, and the border that rank 0 fetches for windows of 65 pixels."""
    photograph = images.photograph("camera")
    layout = evenly(photograph.shape, (2, 2))
    title = "Windows of 65 × 65 pixels: rank 0 fetches what is coloured"
    return tiles.draw(photograph, layout, _regions(layout, 65), title, shown=[0])


def _regions(layout, window):
    """What each rank needs so that each of its pixels is the middle of a window."""
    reach, whole = window // 2, Box.whole(layout.shape)
    grown = ([(a - reach, b + reach) for a, b in box.intervals] for box in layout.boxes())
    return [Box.of(*each).meet(whole) for each in grown]


def strips_or_squares():
    """The pixels that all ranks fetch in all, by ranks: strips grow faster than squares."""
    counts = 4, 9, 16, 36, 64
    grids = {"strips": lambda p: (1, p), "squares": lambda p: (round(p**0.5), round(p**0.5))}
    rows = {}
    for name, grid in grids.items():
        layouts = [evenly((512, 512), grid(p)) for p in counts]
        got = [sum(each for _, each, _ in cost(one, _regions(one, 33))) for one in layouts]
        rows[name] = counts, [each / 512**2 for each in got]
    title = "512 × 512 pixels, windows of 33 × 33"
    return lines.draw(rows, title, "ranks", "images fetched in all", log="")


def seams():
    """A blurred photograph: of one process, of four tiles that know nothing of one another, and
    the difference, which is a cross along the cuts."""
    photograph = images.photograph("camera")[None, None]
    whole, naive = _blurred(photograph), torch.empty(photograph.shape)
    for tile in evenly((512, 512), (2, 2)).boxes():
        rows, columns = (slice(*each) for each in tile.intervals)
        naive[:, :, rows, columns] = _blurred(photograph[:, :, rows, columns])
    shown = {"one process": whole, "four tiles, naive": naive, "difference": (naive - whole).abs()}
    shown = {name: each[0, 0, 196:316, 196:316] for name, each in shown.items()}
    return figures.pictures(shown, "Three layers of windows of 9 × 9, where four tiles meet",
                            columns=3)  # fmt: skip


def _blurred(x):
    """Three means of 9 x 9 pixels, one on another, with zeros around the image."""
    for _ in range(3):
        x = conv2d(x, torch.ones(1, 1, 9, 9) / 81, padding=4)
    return x


def one_batch():
    """Four ranks in a row and one batch: at every moment one of them works."""
    timing = simulate(gpipe(4, 1), 1, 2)
    return schedule.draw(timing, f"One batch: a rank is idle {timing.bubble:.0%} of the time")


def micro_batches():
    """The batch in eight micro-batches, which follow one another: all forward, then all back."""
    return _scheduled("GPipe, 8 micro-batches", gpipe(4, 8))


def one_and_one():
    """The same steps in another order: each rank goes back as soon as it can."""
    return _scheduled("1F1B, 8 micro-batches", one_forward_one_backward(4, 8))


def no_bubble():
    """The backward pass in two halves; gradients of weights fill what was idle."""
    return _scheduled("Zero bubble, 8 micro-batches", zero_bubble(4, 8))


def _scheduled(name, table):
    timing = simulate(table, 1, 2)
    kept = ", ".join(map(str, timing.peak_live))
    return schedule.draw(timing, f"{name}: idle {timing.bubble:.0%}; kept by rank {kept}")


def three_stages():
    """Gigabytes on each of 64 ranks for 7.5 billion weights, in the stages 0 to 3 of sharding."""
    names = "weights", "gradients", "optimizer"
    rows = {}
    for stage in range(4):
        held = account(7.5e9, 64, stage)
        rows[f"stage {stage}"] = {name: each / 1e9 for name, each in zip(names, held, strict=True)}
    title = "7.5 billion weights on 64 ranks, by formula"
    return memory.draw(rows, title, "GB a rank", marks={"a card: 80 GB": 80})


def in_time():
    """What rank 0 does in a step on shards: it computes while the next layer's weights come."""
    trace = Trace()
    second = shard_steps.two_steps(hardware.FDR, 3, 4096, trace)[1]
    title = "Eight P100 over FDR InfiniBand, stage 3, simulated"
    return prefetch.draw({"step 2": second}, trace, title, "simulated")


def three_rounds():
    """Which images all ranks see in which round, in the three schemes of the one weird trick."""
    plans = {scheme: rounds(scheme, [4, 4, 4, 4]) for scheme in "abc"}
    return shown_rows.draw(plans, "The number on an image is the round in which all ranks see it")


def three_axes():
    """Eight ranks as a grid, three times: groups along data, pipeline and tensor."""
    sizes = {"data": 2, "pipeline": 2, "tensor": 2}
    world = simulated(fabric.one_switch(8, hardware.FREE, hardware.FDR))
    groups = run(_groups, 8, sizes, on=world)[0]
    return rank_grid.draw(sizes, groups, "The same eight ranks, three times: a letter is a group")


def _groups(comm, sizes):
    grid = Grid(comm, **sizes)
    return {name: grid.groups(name) for name in sizes}


def busy_experts():
    """Tokens of four ranks at sixteen experts of an uneven gate: the first ones are full, tokens
    are dropped, and others are idle."""
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(512, 16, generator=chance) - 0.15 * torch.arange(16)
    chosen = gates(logits, logits, None, k=2).chosen.tensor_split(4)
    asked = [each.flatten().bincount(minlength=16).tolist() for each in chosen]
    capacity = capacity_of(1.25, 2, 512, 16)
    plan = dispatch_plan(asked, capacity)
    title = f"A gate that prefers low numbers: {sum(plan.dropped)} of 1,024 choices are dropped"
    return expert_load.draw(plan, title, capacity=capacity)
