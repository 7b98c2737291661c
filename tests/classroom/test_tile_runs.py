"""Tiles alone and as an array, slopes with and without a way back, what is fetched and kept."""

import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d

from course.classroom.tile_runs import (
    assembled,
    grown,
    halo_boxes,
    kept_mb,
    kept_on_tile,
    kilobytes_sent,
    normalised_tile,
    own_slope,
    share_fetched,
    tile_alone,
    tile_of_array,
)
from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.comm import Trace
from course.comm.trace import Event
from course.parallel.array import Box, part
from course.worlds import run, simulated

IMAGE = torch.arange(1 * 1 * 7 * 9.0).remainder(11).view(1, 1, 7, 9)
MEAN = torch.ones(1, 1, 3, 3) / 9


def on(ranks):
    return simulated(one_switch(ranks, FREE, FDR))


def mean(x):
    return conv2d(x, MEAN, padding=1)


def test_an_array_gives_the_whole_image_and_a_tile_alone_is_wrong_at_the_cuts():
    whole = mean(IMAGE)
    tiled = assembled(run(tile_of_array, 4, IMAGE, mean, on=on(4)), IMAGE.shape)
    alone = assembled(run(tile_alone, 4, IMAGE, mean, on=on(4)), IMAGE.shape)
    assert torch.allclose(tiled, whole)
    wrong = (alone - whole).abs()[0, 0] > 1e-6
    assert wrong[3:5].all() and wrong[:, 4:6].all()  # rows 0-3 and 4-6, columns 0-4 and 5-8
    assert not wrong[:3, :4].any() and not wrong[5:, 6:].any()


def test_a_box_grows_on_both_sides_by_a_number_for_each_axis():
    assert grown(Box.of((2, 5), (1, 4)), (1, 3)) == Box.of((1, 6), (-2, 7))


def test_a_halo_is_one_pixel_in_rows_and_columns():
    def boxes(comm):
        return halo_boxes(part(comm, IMAGE, (1, 1, 1, 2)))

    expected = [Box.of((0, 1), (0, 1), (-1, 8), (-1, 6)), Box.of((0, 1), (0, 1), (-1, 8), (4, 10))]
    assert run(boxes, 2, on=on(2))[0] == expected


def test_slopes_of_filters_add_up_unless_the_way_back_is_forgotten():
    chance = torch.Generator().manual_seed(0)
    first = torch.randn(2, 1, 3, 3, generator=chance).double()
    second = torch.randn(1, 2, 3, 3, generator=chance).double()
    weight, image = first.clone().requires_grad_(), IMAGE.double()
    hidden = torch.relu(conv2d(image, weight, padding=1))
    conv2d(hidden, second, padding=1).square().sum().backward()
    found = {forget: sum(run(own_slope, 2, image, first, second, forget, on=on(2)))
             for forget in (False, True)}  # fmt: skip
    assert torch.allclose(found[False], weight.grad, rtol=1e-12)
    assert not torch.allclose(found[True], weight.grad, rtol=1e-3)


def test_kilobytes_are_of_sends_in_calls_of_the_name():
    trace = Trace()
    trace.add(2, [
        Event(0, "send", 1, 0, 3000, 0.0, 1.0, "fetch #1 in world"),
        Event(1, "recv", 0, 0, 3000, 0.0, 1.0, "fetch #1 in world"),
        Event(1, "send", 0, 0, 1000, 0.0, 1.0, "fetch #2 in world"),
        Event(0, "send", 1, 0, 500, 0.0, 1.0, "all_reduce #1 in world"),
    ])  # fmt: skip
    assert kilobytes_sent(trace, "fetch") == 4
    assert kilobytes_sent(trace, "all_reduce", steps=5) == 0.1


def test_what_is_kept_is_counted_once_a_block_and_nothing_without_slopes():
    image, layer = torch.ones(1, 1, 100, 100), nn.Conv2d(1, 1, 1, bias=False)
    twice = nn.Sequential(layer, nn.Flatten(2), nn.Unflatten(2, (100, 100)), nn.ReLU())
    kept = kept_mb(twice, image, torch.zeros_like(image))
    # image, what the loss has given, what ReLU has given (which the loss keeps too), the weight
    assert kept == pytest.approx(3 * 0.04 + 4e-6, abs=2e-5)
    layer.requires_grad_(False)
    assert kept_mb(twice, image, torch.zeros_like(image)) == 0


def test_a_tile_keeps_its_share_and_some_halo():
    image, net = torch.ones(1, 1, 64, 64).double(), nn.Conv2d(1, 4, 3, padding=1).double()
    wanted = torch.zeros(1, 4, 64, 64).double()
    (whole,) = run(kept_on_tile, 1, net, image, wanted, (1, 1))
    halves = run(kept_on_tile, 2, net, image, wanted, (1, 2))
    assert all(whole / 2 < each < 1.2 * whole / 2 for each in halves), (whole, halves)


def test_a_norm_of_the_array_is_that_of_the_image():
    found = run(normalised_tile, 4, IMAGE, batch_norm, on=on(4))
    right = batch_norm(IMAGE, None, None, training=True)
    assert torch.allclose(assembled(found, IMAGE.shape), right, atol=1e-5)


def test_an_inner_tile_fetches_most_and_edges_are_not_fetched():
    assert share_fetched(32, 4) == (10 * 10 - 8 * 8) / 8**2
    assert share_fetched(16, 2) == (9 * 9 - 8 * 8) / 8**2
