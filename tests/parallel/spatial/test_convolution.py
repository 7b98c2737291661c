"""Convolutions and pools of arrays are those of the whole: values, and the slopes of everything."""

import functools
import random

import pytest
import torch
from torch.nn import functional

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import DistributedArray, part
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn, some_layout

KINDS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
LONGEST = {1: 17, 2: 11, 3: 6}


def some_convolution(draw, axes):
    """Shapes and options of a convolution that has an output, by chance."""
    while True:
        groups = draw.choice([1, 1, 2])
        sides = [draw.randint(3, LONGEST[axes]) for _ in range(axes)]
        kernel = [draw.randint(1, 4) for _ in range(axes)]
        options = {
            "stride": tuple(draw.randint(1, 3) for _ in range(axes)),
            "padding": tuple(draw.randint(0, 2) for _ in range(axes)),
            "dilation": tuple(draw.randint(1, 2) for _ in range(axes)),
        }
        if draw.random() < 0.2:
            options |= {"padding": "same", "stride": 1}
        shape, weight = (draw.randint(1, 3), 2 * groups, *sides), (2 * groups, 2, *kernel)
        room = zip(sides, kernel, options["dilation"], strict=True)
        pads = options["padding"] if isinstance(options["padding"], tuple) else [9] * axes
        if all(n + 2 * p > d * (k - 1) for (n, k, d), p in zip(room, pads)):
            return shape, weight, {**options, "groups": groups}


def errors_of(comm, layout, x, weights, of):
    """Of the value of sum(of(x)^2), and of its slopes in x and in all `weights`."""
    whole, *parts = (each.clone().requires_grad_() for each in (x, *weights))
    expected = of(whole, *parts).square().sum()
    expected.backward()
    array = part(comm, x, layout=layout)
    array.local.requires_grad_()
    mine = [each.clone().requires_grad_() for each in weights]
    found = of(array, *mine).square().sum()
    found.backward()
    back = DistributedArray(comm, array.local.grad, layout).gather()
    errors = [found - expected, back - whole.grad]
    errors += [a.grad - b.grad for a, b in zip(mine, parts)]
    scale = max(1.0, float(expected))
    return max(float(each.detach().abs().max()) / scale for each in errors)


def spatial_layout(draw, shape, ranks):
    """Cuts by chance of the batch and of the spatial axes; channels stay whole."""
    layout = some_layout(draw, (shape[0], *shape[2:]), ranks)
    return type(layout)((layout.cuts[0], (0, shape[1]), *layout.cuts[1:]))


def convolved(comm, seed, count):
    draw, worst = random.Random(seed), []
    for number in range(count):
        axes = draw.randint(1, 3)
        shape, weight, options = some_convolution(draw, axes)
        layout = spatial_layout(draw, shape, comm.size)
        x, w, b = (drawn(*s, seed=number + k) for k, s in enumerate([shape, weight, weight[:1]]))
        of = functools.partial(KINDS[axes], **options)
        error = errors_of(comm, layout, x, [w, b], of)
        worst.append((error, str(layout), weight, options))
    return [each for each in worst if each[0] > 1e-12]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_convolution_cut_anyhow_is_that_of_the_whole(ranks):
    assert run(convolved, ranks, ranks, 25, timeout=60) == [[]] * ranks


@pytest.mark.parametrize("ranks", [5, 6, 8])
def test_on_more_ranks_of_an_imagined_cluster(ranks):
    assert (
        run(convolved, ranks, ranks, 6, on=simulated(one_switch(ranks, FREE, NDR))) == [[]] * ranks
    )


def pooled(comm, seed, count):
    draw, worst = random.Random(seed), []
    for number in range(count):
        axes = draw.randint(1, 3)
        kernel = [draw.randint(1, 3) for _ in range(axes)]
        shape = draw.randint(1, 2), 2, *(draw.randint(4, LONGEST[axes]) for _ in range(axes))
        options = {"padding": tuple(draw.randint(0, k // 2) for k in kernel)}
        if draw.random() < 0.7:
            options["stride"] = tuple(draw.randint(1, 3) for _ in range(axes))
        if axes > 1 and draw.random() < 0.5:
            options["divisor_override"] = 3
        layout = spatial_layout(draw, shape, comm.size)
        of = functools.partial(POOLS[axes], kernel_size=kernel, **options)
        error = errors_of(comm, layout, drawn(*shape, seed=number), [], of)
        worst.append((error, str(layout), kernel, options))
    return [each for each in worst if each[0] > 1e-12]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_mean_over_windows_is_that_of_the_whole(ranks):
    assert run(pooled, ranks, ranks, 15, timeout=60) == [[]] * ranks


def not_whole(comm):
    functional.avg_pool2d(part(comm, drawn(1, 1, 5, 5), (1, 1, comm.size, 1)), 2, ceil_mode=True)


def test_windows_that_are_not_whole_are_refused():
    with pytest.raises(RankError, match="means over windows that are not whole: gather"):
        run(not_whole, 2, timeout=5)


def too_small(comm):
    functional.conv1d(part(comm, drawn(1, 1, 4), (1, 1, comm.size)), torch.ones(1, 1, 5).double())


def test_a_window_that_does_not_fit():
    sentence = "a window that reaches over 5 places does not fit on an axis of 4"
    with pytest.raises(RankError, match=sentence):
        run(too_small, 2, timeout=5)


def halo_bytes(comm):
    """What a 3 x 3 convolution of 2 x 2 tiles of 64 x 64 sends: sides and corner, once."""
    x = part(comm, drawn(1, 3, 128, 128), (1, 1, 2, 2))
    functional.conv2d(x, drawn(2, 3, 3, 3), padding=1)
    return comm.meter.sent_bytes, comm.meter.sent_messages


def test_a_convolution_sends_its_halo_and_no_weight():
    assert run(halo_bytes, 4, timeout=10) == [(8 * 3 * 129, 3)] * 4
