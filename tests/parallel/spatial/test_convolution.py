"""Convolutions and pools of arrays are those of the whole: values, and the slopes of everything."""

import functools
import random
import warnings

import pytest
import torch
from torch.nn import functional

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import DistributedArray, cut_at, part
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn, off, some_layout

KINDS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {
    1: functional.conv_transpose1d, 2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}  # fmt: skip
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
    scale = max(1.0, expected.item())
    return max(off(each) / scale for each in errors)


def spatial_layout(draw, shape, ranks):
    """Cuts by chance of the batch and of the spatial axes; channels stay whole."""
    layout = some_layout(draw, (shape[0], *shape[2:]), ranks)
    return type(layout)((layout.cuts[0], (0, shape[1]), *layout.cuts[1:]))


def convolved(comm, seed, count):
    warnings.filterwarnings("ignore", "Using padding='same' with even kernel")  # torch's own
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
    on = simulated(one_switch(ranks, FREE, NDR))
    assert run(convolved, ranks, ranks, 6, on=on) == [[]] * ranks


def spread_out(comm, seed, count):
    draw, worst = random.Random(seed), []
    for number in range(count):
        axes, groups = draw.randint(1, 3), draw.choice([1, 2])
        stride = [draw.randint(1, 3) for _ in range(axes)]
        kernel = [draw.randint(1, 4) for _ in range(axes)]
        options = {
            "stride": stride, "groups": groups,
            "padding": [draw.randint(0, min(k // 2, 1)) for k in kernel],
            "dilation": [draw.randint(1, 2) for _ in range(axes)],
            "output_padding": [draw.randint(0, s - 1) for s in stride],
        }  # fmt: skip
        shape = draw.randint(1, 2), 2 * groups, *(draw.randint(3, 6) for _ in range(axes))
        layout = spatial_layout(draw, shape, comm.size)
        sizes = [shape, (2 * groups, 2, *kernel), (2 * groups,)]
        x, w, b = (drawn(*s, seed=number + k) for k, s in enumerate(sizes))
        of = functools.partial(TRANSPOSED[axes], **options)
        worst.append((errors_of(comm, layout, x, [w, b], of), str(layout), kernel, options))
    return [each for each in worst if each[0] > 1e-12]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_transposed_convolution_is_that_of_the_whole(ranks):
    assert run(spread_out, ranks, ranks, 15, timeout=60) == [[]] * ranks


def far_apart(comm):
    """Strides longer than windows, and a window longer than its axis that "ceil" lets be."""
    x, weights = drawn(1, 2, 9), [drawn(2, 2, 2), drawn(2)]
    spread = functools.partial(functional.conv_transpose1d, stride=7, padding=3)
    pool = functools.partial(functional.max_pool1d, kernel_size=5, stride=6, padding=1, dilation=3,
                             ceil_mode=True)  # fmt: skip
    layouts = [cut_at(x.shape, {2: (0, *cuts, 9)}) for cuts in ((1, 2), (4, 8), (0, 5))]
    errors = [errors_of(comm, each, x, weights, spread) for each in layouts]
    return max(errors + [errors_of(comm, each, x, [], pool) for each in layouts])


def test_answers_between_two_places_and_windows_that_reach_over_the_edge():
    assert max(run(far_apart, 3, on=simulated(one_switch(3, FREE, NDR)))) < 1e-12


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
