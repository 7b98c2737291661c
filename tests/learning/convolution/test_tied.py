import itertools
import math

import pytest
import torch
from torch.nn.functional import conv2d

from course.learning.convolution import tied as convolution
from course.learning.images import photographs as images
from tests.learning.convolution.oracle import as_torch_does, drawn, same

METHODS = [convolution.direct, convolution.gemm, convolution.fft]
every_method = pytest.mark.parametrize("method", METHODS)


@every_method
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("taps", [(1, 1), (3, 3), (2, 5)])
def test_outputs_and_both_gradients_are_those_of_torch(method, taps, groups):
    for stride, padding, dilation in itertools.product([1, 2, 3], [0, 1, 4], [1, 2]):
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        as_torch_does(method, (2, 6, 9, 14), (12, 6 // groups, *taps), **how)


@every_method
def test_a_filter_as_large_as_the_image_and_a_single_pixel(method):
    same(method(drawn(1, 2, 7, 5), drawn(3, 2, 7, 5)), conv2d(drawn(1, 2, 7, 5), drawn(3, 2, 7, 5)))
    same(method(drawn(1, 1, 1, 1), drawn(1, 1, 1, 1)), conv2d(drawn(1, 1, 1, 1), drawn(1, 1, 1, 1)))


@every_method
def test_views_with_strides_of_their_own(method):
    inputs, filters = drawn(9, 4, 7, 2).permute(3, 1, 0, 2), drawn(5, 4, 6, 6)[..., ::2, 1::2]
    same(method(inputs, filters, padding=1), conv2d(inputs, filters, padding=1))


@every_method
def test_the_gradient_of_the_gradient(method):
    inputs, filters = drawn(1, 2, 4, 3).requires_grad_(), drawn(2, 1, 2, 3).requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda x, f: method(x, f, stride=2, padding=1, groups=2), (inputs, filters)
    )


@every_method
def test_float32_stays_float32_and_near(method):
    inputs, filters = drawn(2, 3, 20, 17), drawn(4, 3, 5, 5)
    single = method(inputs.float(), filters.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), conv2d(inputs, filters), atol=1e-4, rtol=0)


def test_a_column_holds_what_the_filter_sees():
    picture = torch.arange(12.0).reshape(1, 1, 3, 4)
    assert convolution.columns(picture, (2, 2))[0].T.tolist() == [
        *([0, 1, 4, 5], [1, 2, 5, 6], [2, 3, 6, 7]),
        *([4, 5, 8, 9], [5, 6, 9, 10], [6, 7, 10, 11]),
    ]


def test_columns_are_those_of_torch():
    pictures, how = drawn(2, 3, 9, 8), {"stride": 2, "padding": 1, "dilation": 2}
    same(
        convolution.columns(pictures, (2, 3), **how),
        torch.nn.functional.unfold(pictures, (2, 3), **how),
    )


def test_columns_are_written_where_they_are_wanted():
    pictures, how = drawn(2, 3, 9, 8), {"stride": 2, "padding": 1}
    right = convolution.columns(pictures, (2, 3), **how)
    room = torch.zeros_like(right)
    made = convolution.columns(pictures, (2, 3), **how, out=room)
    assert made.data_ptr() == room.data_ptr() and torch.equal(room, right)
    with pytest.raises(ValueError, match=r"are \[2, 18, 20\], and out is \[2, 20, 18\]"):
        convolution.columns(pictures, (2, 3), **how, out=room.mT.contiguous())


def test_a_photograph_blurred_through_frequencies():
    picture = images.photograph("camera").double()[None, None, :150, :131]
    box = torch.full((1, 1, 15, 15), 1 / 225, dtype=torch.float64)
    blurred = convolution.fft(picture, box)
    same(blurred, torch.nn.functional.avg_pool2d(picture, 15, stride=1))


@pytest.mark.parametrize("n, quick", [(1, 1), (7, 8), (11, 12), (13, 15), (97, 100), (241, 243)])
def test_a_quick_size_has_small_prime_factors(n, quick):
    assert convolution.fft_size(n) == quick


def test_multiplications_are_counted():
    inputs, filters = drawn(2, 6, 11, 8), drawn(9, 2, 3, 5)
    how = {"stride": 2, "padding": 1, "groups": 3}
    rows, across = conv2d(inputs, filters, **how).shape[2:]
    expected = 2 * rows * across * 9 * (6 // 3) * 3 * 5
    assert convolution.multiplications(inputs, filters, **how) == expected
    # 2 x 6 images, 9 x 2 filters, 2 x 9 outputs; 11 and 8 pixels with padding need 15 and 10.
    transforms = (12 + 18 + 18) * 150 * math.log2(150)
    products = 2 * 9 * 2 * 4 * 150 / 2
    count = convolution.fft_multiplications(inputs, filters, padding=1, groups=3)
    assert count == round(transforms + products)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (((4, 5, 5), (2, 4, 3, 3)), r"images must be .*, not \[4, 5, 5\]"),
        (((0, 4, 5, 5), (2, 4, 3, 3)), r"images must be .* none 0, not \[0, 4, 5, 5\]"),
        (((1, 4, 5, 5), (4, 3, 3)), r"filters must be .*, not \[4, 3, 3\]"),
        (((1, 4, 5, 5), (0, 4, 3, 3)), r"filters must be .*, not \[0, 4, 3, 3\]"),
        (((1, 4, 5, 5), (2, 3, 3, 3)), "filters over 3 channels in 1 groups do not fit 4 channels"),
        (((1, 4, 5, 5), (2, 4, 3, 6)), "over 6 pixels does not fit on 5 pixels and 0 around"),
        (((1, 4, 5, 5), (2, 4, 3, 3), "dilation", 3), "over 7 pixels does not fit on 5"),
        (((1, 4, 5, 5), (2, 4, 3, 3), "stride", 0), "stride must be .* at least 1, not 0"),
        (((1, 4, 5, 5), (2, 4, 3, 3), "stride", (1, 2)), r"stride must be .*, not \(1, 2\)"),
        (((1, 4, 5, 5), (2, 4, 3, 3), "dilation", 0), "dilation must be .* at least 1, not 0"),
        (((1, 4, 5, 5), (2, 4, 3, 3), "padding", -1), "padding must be .* at least 0, not -1"),
        (((1, 4, 5, 5), (2, 2, 3, 3), "groups", 3), "4 channels and 2 filters .* in 3 groups"),
        (((1, 4, 5, 5), (3, 2, 3, 3), "groups", 2), "4 channels and 3 filters .* in 2 groups"),
        (((1, 4, 5, 5), (2, 4, 3, 3), "groups", 0), "cannot be cut in 0 groups"),
    ],
)
@every_method
def test_what_does_not_fit_is_said(method, wrong, message):
    inputs, filters, *how = wrong
    with pytest.raises(ValueError, match=message):
        method(drawn(*inputs), drawn(*filters), **dict([how] if how else []))


@every_method
def test_types_that_do_not_fit_are_said(method):
    inputs, filters = drawn(1, 1, 5, 5), drawn(1, 1, 3, 3)
    with pytest.raises(ValueError, match="one floating type, not torch.float64, torch.float32"):
        method(inputs, filters.float())
    with pytest.raises(ValueError, match="one floating type, not torch.int64, torch.int64"):
        method(inputs.long(), filters.long())


def test_what_single_functions_refuse():
    with pytest.raises(ValueError, match="fft needs float32 or float64, not torch.float16"):
        convolution.fft(drawn(1, 1, 5, 5).half(), drawn(1, 1, 3, 3).half())
    with pytest.raises(ValueError, match=r"images must be .*, not \[5, 5\]"):
        convolution.columns(drawn(5, 5), (3, 3))
    with pytest.raises(ValueError, match="the size of a filter must be .* at least 1, not 0"):
        convolution.output_size(5, 0)
