"""Means and maxima over windows of arrays are those of the whole, however they are cut."""

import functools
import random

import pytest
import torch
from torch.nn import functional

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import part
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn
from tests.parallel.spatial.test_convolution import LONGEST, errors_of, spatial_layout

POOLS = {
    "mean": [functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d],
    "maximum": [functional.max_pool1d, functional.max_pool2d, functional.max_pool3d],
}


def some_pool(draw, kind, axes):
    """A window and options, by chance."""
    kernel = [draw.randint(1, 3) for _ in range(axes)]
    options = {"kernel_size": kernel, "padding": [draw.randint(0, k // 2) for k in kernel]}
    if draw.random() < 0.7:
        options["stride"] = [draw.randint(1, 3) for _ in range(axes)]
    if draw.random() < 0.4:
        options["ceil_mode"] = True
    if kind == "maximum" and draw.random() < 0.5:
        options["dilation"] = [draw.randint(1, 2) for _ in range(axes)]
    if kind == "mean" and draw.random() < 0.4:
        options["count_include_pad"] = False
    if kind == "mean" and axes > 1 and draw.random() < 0.3:
        options["divisor_override"] = 3
    return options


def pooled(comm, kind, seed, count):
    draw, worst = random.Random(seed), []
    for number in range(count):
        axes = draw.randint(1, 3)
        shape = draw.randint(1, 2), 2, *(draw.randint(5, LONGEST[axes]) for _ in range(axes))
        options, layout = some_pool(draw, kind, axes), spatial_layout(draw, shape, comm.size)
        of = functools.partial(POOLS[kind][axes - 1], **options)
        worst.append(
            (errors_of(comm, layout, drawn(*shape, seed=number), [], of), str(layout), options)
        )
    return [each for each in worst if each[0] > 1e-12]


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_any_pool_cut_anyhow_is_that_of_the_whole(ranks, kind):
    assert run(pooled, ranks, kind, ranks, 20, timeout=60) == [[]] * ranks


def adaptive(comm, sizes):
    layout = spatial_layout(random.Random(0), (2, 3, 7, 5), comm.size)
    of = functools.partial(functional.adaptive_avg_pool2d, output_size=sizes)
    return errors_of(comm, layout, drawn(2, 3, 7, 5), [], of) if layout.grid[0] == 1 else 0.0


@pytest.mark.parametrize("sizes", [1, (1, 1), (2, 3)])
def test_the_mean_of_all_places(sizes):
    assert max(run(adaptive, 3, sizes, timeout=10)) < 1e-12


def of_halves(comm):
    """Windows whose sum a half float cannot hold, and whose mean it can."""
    x = part(comm, torch.full((1, 1, 32, 32), 300.0).half(), (1, 1, comm.size, 1))
    means = functional.avg_pool2d(x, 16).local, functional.adaptive_avg_pool2d(x, 1)
    return [bool((each == 300).all()) for each in means]


def test_a_mean_of_halves_is_a_half():
    assert run(of_halves, 2, on=simulated(one_switch(2, FREE, NDR))) == [[True, True]] * 2


def refused(comm, how):
    x = part(comm, drawn(1, 1, 6, 6), (1, 1, comm.size, 1))
    if how == "indices":
        functional.max_pool2d(x, 2, return_indices=True)
    functional.avg_pool2d(x, 2, padding=2)


@pytest.mark.parametrize("how, sentence", [
    ("indices", r"max_pool2d_with_indices is not known of distributed arrays: gather\(\)"),
    ("padding", "padding is at most half of a window: not 2 of 2"),
])  # fmt: skip
def test_what_is_refused(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(refused, 2, how, timeout=5)
