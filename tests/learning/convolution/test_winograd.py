from fractions import Fraction

import pytest
import torch
from torch.nn.functional import conv2d

from course.learning.convolution import tied as convolution
from course.learning.convolution.winograd import (
    TRANSFORMS,
    one_tile,
    winograd,
    winograd_multiplications,
)
from tests.learning.convolution.oracle import as_torch_does, drawn, same


def unit(length, place):
    return [int(i == place) for i in range(length)]


def correlated(data, taps):
    return [sum(map(int.__mul__, data[i:], taps)) for i in range(len(data) - 2)]


@pytest.mark.parametrize("tile", TRANSFORMS)
def test_the_transforms_are_exact_for_every_pair_of_unit_vectors(tile):
    # Both sides are linear in the data and in the taps: equal on a basis is equal everywhere.
    for i in range(tile + 2):
        for j in range(3):
            data, taps = unit(tile + 2, i), unit(3, j)
            outputs = one_tile(data, taps)
            assert outputs == correlated(data, taps)
            assert all(isinstance(output, Fraction) for output in outputs)


def test_two_outputs_by_hand_from_four_products():
    # (1 - 3) 10, (2 + 3) (10 + 20 + 30) / 2, (3 - 2) (10 - 20 + 30) / 2, (4 - 2) 30
    products = [-20, 150, 10, 60]
    assert one_tile([1, 2, 3, 4], [10, 20, 30]) == [sum(products[:3]), 150 - 10 + 60] == [140, 200]


@pytest.mark.parametrize("tile", TRANSFORMS)
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("height, width", [(3, 3), (8, 9), (11, 6)])
def test_outputs_and_both_gradients_are_those_of_torch(tile, groups, height, width):
    for padding in (0, 1, 4):
        shapes, how = ((2, 6, height, width), (12, 6 // groups, 3, 3)), {"tile": tile}
        as_torch_does(winograd, *shapes, only_ours=how, padding=padding, groups=groups)


def test_views_with_strides_of_their_own():
    inputs, filters = drawn(9, 4, 7, 2).permute(3, 1, 0, 2), drawn(5, 4, 6, 6)[..., ::2, 1::2]
    same(winograd(inputs, filters, tile=4), conv2d(inputs, filters))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_larger_tile_rounds_worse(dtype):
    inputs, filters = drawn(200, 1, 6, 6, dtype=dtype), drawn(20, 1, 3, 3, dtype=dtype, seed=1)
    exact = conv2d(inputs.double(), filters.double())

    def error(outputs):
        assert outputs.dtype == dtype
        return (outputs.double() - exact).square().mean().sqrt()

    by_gemm = error(convolution.gemm(inputs, filters))
    by_two, by_four = (error(winograd(inputs, filters, tile=tile)) for tile in (2, 4))
    assert 1.4 * by_gemm < by_two and 4 * by_two < by_four < 200 * by_gemm


@pytest.mark.parametrize("tile, saved", [(2, 2.25), (4, 4.0)])
def test_multiplications_are_saved(tile, saved):
    inputs, filters = drawn(2, 6, 8, 12), drawn(4, 3, 3, 3)
    needed = winograd_multiplications(inputs, filters, tile=tile, padding=1, groups=2)
    assert convolution.multiplications(inputs, filters, padding=1, groups=2) == saved * needed


def test_a_tile_that_hangs_over_is_counted_in_full():
    assert winograd_multiplications(drawn(1, 1, 7, 3), drawn(1, 1, 3, 3), tile=4) == 2 * 36


@pytest.mark.parametrize(
    "filters, how, message",
    [
        ((2, 4, 3, 5), {}, "3 x 3 filters only, not 3 x 5"),
        ((2, 4, 3, 3), {"stride": 2}, "stride 1 and dilation 1, not 2 and 1"),
        ((2, 4, 3, 3), {"dilation": 2}, "stride 1 and dilation 1, not 1 and 2"),
        ((2, 4, 3, 3), {"tile": 3}, "a tile has 2 or 4 outputs, not 3"),
        ((2, 4, 3, 3), {"padding": -1}, "padding must be .* at least 0, not -1"),
        ((2, 3, 3, 3), {}, "filters over 3 channels in 1 groups do not fit 4 channels"),
    ],
)
def test_what_winograd_cannot_do_is_said(filters, how, message):
    with pytest.raises(ValueError, match=message):
        winograd(drawn(1, 4, 8, 8), drawn(*filters), **how)


@pytest.mark.parametrize("data, taps", [(5, 3), (4, 2), (6, 4)])
def test_a_tile_of_another_length_is_refused(data, taps):
    with pytest.raises(ValueError, match=f"4 or 6 numbers and 3 taps, not {data} and {taps}"):
        one_tile([1] * data, [1] * taps)
