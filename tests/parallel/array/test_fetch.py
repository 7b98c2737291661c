"""Any box for any rank: equal to padding and slicing, and its way back is its adjoint."""

import dataclasses
import math
import os
import random
import signal

import numpy as np
import pytest
import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import Box, DistributedArray, cut_at, evenly, part
from course.parallel.array.boxes import FILLS
from course.parallel.array.pieces import cost
from course.worlds import RankError, processes, run, simulated

PADS = {"zero": "constant", "circular": "wrap", "reflect": "reflect", "replicate": "edge"}
SHAPES = {1: (7,), 2: (6, 5), 3: (4, 3, 5)}


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def off(error) -> float:
    """The largest of some differences; infinite where one is no number: `max` may pass over that,
    and no comparison with it is true."""
    return error.detach().double().nan_to_num(nan=math.inf).abs().max().item()


def some_layout(draw, shape, ranks):
    """Cuts by chance along a chance grid, empty parts among them."""
    grid = [1] * len(shape)
    while ranks > 1:
        factor = next(k for k in range(2, ranks + 1) if ranks % k == 0)
        grid[draw.randrange(len(shape))] *= factor
        ranks //= factor
    inner = (sorted(draw.choices(range(n + 1), k=parts - 1)) for n, parts in zip(shape, grid))
    return cut_at(shape, {a: (0, *cuts, shape[a]) for a, cuts in enumerate(inner)})


def some_region(draw, shape):
    starts = [draw.randint(-3, n + 1) for n in shape]
    return Box(tuple(starts), tuple(a + draw.randint(0, n + 3) for a, n in zip(starts, shape)))


def shown(whole, region, fill):
    """The region by numpy: pad far, then slice."""
    far = 20
    padded = torch.from_numpy(np.pad(whole.numpy(), far, PADS[fill]))
    return padded[tuple(slice(a + far, b + far) for a, b in region.intervals)]


def random_fetches(comm, seed, count):
    """Errors of values and of <F x, y> - <x, F* y>, of `count` fetches drawn alike on all ranks."""
    draw, wrong = random.Random(seed), []
    for number in range(count):
        shape, fill = SHAPES[draw.randint(1, 3)], draw.choice(list(FILLS))
        layout = some_layout(draw, shape, comm.size)
        regions = [some_region(draw, shape) for _ in range(comm.size)]
        whole, region = drawn(*shape, seed=number), regions[comm.rank]
        array = part(comm, whole, layout=layout)
        array.local.requires_grad_()
        asked = regions if number % 2 else region
        found = array.fetch(asked, fill)
        if not torch.equal(found.detach(), shown(whole, region, fill)):
            wrong.append((number, "value", str(layout), str(region), fill))
        y = drawn(*region.shape, seed=100 * comm.rank + number)
        (slope,) = torch.autograd.grad((found * y).sum(), [array.local])
        mine = ((found * y).sum() - (array.local * slope).sum()).item()  # of two sums over ranks
        if not abs(sum(map(float, comm.gather_texts(repr(mine))))) < 1e-11:
            wrong.append((number, "adjoint", str(layout), str(region), fill))
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_boxes_of_random_layouts_are_those_of_the_whole_and_so_are_their_adjoints(ranks):
    assert run(random_fetches, ranks, ranks, 40, timeout=60) == [[]] * ranks


@pytest.mark.parametrize("ranks", [5, 6, 8])
def test_on_more_ranks_of_an_imagined_cluster(ranks):
    on = simulated(one_switch(ranks, FREE, NDR))
    assert run(random_fetches, ranks, ranks, 12, on=on) == [[]] * ranks


def random_boxes(comm, seed, count):
    """The same of boxes within each region, some of which overlap."""
    draw, wrong = random.Random(seed), []
    for number in range(count):
        shape, fill = SHAPES[draw.randint(1, 3)], draw.choice(list(FILLS))
        layout = some_layout(draw, shape, comm.size)
        regions = [some_region(draw, shape) for _ in range(comm.size)]
        chance = random.Random(1000 * comm.rank + number)
        boxes = [some_box_of(chance, regions[comm.rank]) for _ in range(chance.randint(1, 3))]
        whole = drawn(*shape, seed=number)
        array = part(comm, whole, layout=layout)
        array.local.requires_grad_()
        found = array.begin_fetch(regions, fill, boxes).wait()
        expected = [shown(whole, box, fill) for box in boxes]
        if not all(map(torch.equal, [each.detach() for each in found], expected)):
            wrong.append((number, "value", str(layout), boxes, fill))
        told = sum((each * drawn(*each.shape, seed=number)).sum() for each in found)
        (slope,) = torch.autograd.grad(told, [array.local])
        mine = (told - (array.local * slope).sum()).item()
        if not abs(sum(map(float, comm.gather_texts(repr(mine))))) < 1e-11:
            wrong.append((number, "adjoint", str(layout), boxes, fill))
    return wrong


def some_box_of(draw, region):
    ends = (sorted(draw.randint(*interval) for _ in range(2)) for interval in region.intervals)
    return Box.of(*ends)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_boxes_of_a_region_are_those_of_the_whole_and_so_are_their_adjoints(ranks):
    assert run(random_boxes, ranks, ranks, 40, timeout=60) == [[]] * ranks


def changed(comm):
    """What was fetched, of an array that changes when the fetch has begun."""
    array = part(comm, drawn(6, 4), (comm.size, 1))
    pending = array.begin_fetch([Box.of((1, 5), (0, 4))] * comm.size)
    array.local.add_(1)
    return torch.equal(pending.wait(), drawn(6, 4)[1:5])


def test_what_is_fetched_is_the_array_as_it_was_at_the_beginning():
    assert run(changed, 2, timeout=5) == [True] * 2


def metered(comm, seed):
    """(sent elements, received, messages) of fetches and of their adjoints, beside `cost`."""
    draw, found = random.Random(seed), []
    for _ in range(12):
        shape, fill = SHAPES[draw.randint(1, 3)], draw.choice(list(FILLS))
        layout = some_layout(draw, shape, comm.size)
        regions = [some_region(draw, shape) for _ in range(comm.size)]
        array = part(comm, drawn(*shape), layout=layout)
        array.local.requires_grad_()
        before = dataclasses.replace(comm.meter)
        region = array.fetch(regions, fill)
        there = counted(comm.meter, before)
        before = dataclasses.replace(comm.meter)
        region.sum().backward()
        sent, got, messages = cost(layout, regions, fill)[comm.rank]
        back = counted(comm.meter, before)
        found.append((there == (8 * sent, 8 * got, messages), back[:2] == (8 * got, 8 * sent)))
    return found


def counted(now, before):
    return (now.sent_bytes - before.sent_bytes, now.received_bytes - before.received_bytes,
            now.sent_messages - before.sent_messages)  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_and_messages_are_those_of_the_cost(ranks):
    assert run(metered, ranks, 3, timeout=30) == [[(True, True)] * 12] * ranks


def test_a_halo_costs_its_border_and_nothing_else():
    """A tile of 64 x 64 of 128 x 128 touches two sides and one corner: 64 + 64 + 1 places."""
    layout = evenly((1, 3, 128, 128), (1, 1, 2, 2))
    regions = [Box.of((0, 1), (0, 3), *((a - 1, b + 1) for a, b in box.intervals[2:]))
               for box in layout.boxes()]  # fmt: skip
    assert cost(layout, regions) == [(3 * 129, 3 * 129, 3)] * 4


def in_any_order(comm):
    """Two fetches under way at once, the later one finished first."""
    whole = drawn(9, 4)
    array = part(comm, whole, (comm.size, 1))
    first = array.begin_fetch([Box.of((-2, 11), (0, 4))] * comm.size)
    second = array.begin_fetch([Box.of((0, 9), (1, 3))] * comm.size, "circular")
    return torch.equal(second.wait(), whole[:, 1:3]), torch.equal(first.wait()[2:11], whole)


def test_several_may_be_under_way():
    assert run(in_any_order, 3, timeout=10) == [(True, True)] * 3


def waited_for_twice(comm):
    pending = part(comm, drawn(6, 4), (comm.size, 1)).begin_fetch(Box.of((1, 5), (0, 4)))
    return pending.wait() is pending.wait()


def test_a_region_may_be_waited_for_again():
    assert run(waited_for_twice, 2, on=simulated(one_switch(2, FREE, NDR))) == [True] * 2


def wrongly(comm, kind):
    array = part(comm, drawn(6, 4), (comm.size, 1))
    wrong = {
        "axes": lambda: array.fetch(Box.of((0, 2))),
        "fill": lambda: array.fetch(Box.of((0, 2), (0, 4)), "mirror"),
        "count": lambda: array.fetch([Box.of((0, 2), (0, 4))]),
        "nothing": lambda: part(comm, drawn(0, 4), (comm.size, 1)).fetch(
            Box.of((0, 2), (0, 4)), "circular"),
        "part": lambda: DistributedArray(comm, drawn(3, 3), array.layout),
        "grid": lambda: part(comm, drawn(6, 4), (comm.size + 1, 1)),
        "cut": lambda: array.redistribute(evenly((4, 6), (comm.size, 1))),
    }  # fmt: skip
    wrong[kind]()


@pytest.mark.parametrize("kind, sentence", [
    ("axes", r"rank 0 asks for the region \[0:2\], with 1 axes, of an array of shape \(6, 4\)"),
    ("fill", "rank 0: beyond the edges there is zero, circular, reflect, replicate, not 'mirror'"),
    ("count", "rank 0: 2 ranks ask for a region each, not 1"),
    ("nothing", r"rank 0 asks for \[0:2, 0:4\] of an array of shape \(0, 4\)"),
    ("part", r"rank 0 owns \[0:3, 0:4\] of the shape \(6, 4\), which is \(3, 4\): not \(3, 3\)"),
    ("grid", "rank 0: the grid 3 x 1 has 3 parts, and there are 2 ranks"),
    ("cut", r"rank 0: an array of shape \(6, 4\) cannot be cut as one of \(4, 6\)"),
])  # fmt: skip
def test_what_cannot_be_fetched_is_said_with_rank_region_and_shape(kind, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrongly, 2, kind, timeout=5)


def killed(comm, when):
    array = part(comm, drawn(6, 4), (comm.size, 1))
    array.local.requires_grad_()
    if when == "before" and comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    region = array.fetch([Box.of((0, 6), (0, 4))] * comm.size)
    if when == "between" and comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    region.sum().backward()


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("checked", [True, False])
def test_a_killed_rank_is_named(when, checked):
    with pytest.raises(RankError, match="rank 1 was ended by SIGKILL"):
        run(killed, 3, when, timeout=5, checked=checked, on=processes())
