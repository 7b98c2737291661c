import itertools

import pytest
import torch
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.nn.functional import conv2d, conv_transpose2d

from course.learning.convolution.local_linear import (
    disjoint,
    local_linear,
    local_linear_transposed,
    windows,
)
from tests.largest import Largest
from tests.worlds.simulator.test_op_counter import counted

# channels, (height, width), field, stride, maps, block
GEOMETRIES = [
    (1, (1, 1), 1, 1, 1, 1),
    (3, (5, 5), 5, 1, 2, 1),  # one window sees everything
    (2, (7, 9), 3, 2, 4, 2),
    (2, (9, 6), 2, 3, 3, 1),  # pixels between the windows
    (1, (4, 11), 1, 1, 2, 3),  # windows of one pixel
    (2, (3, 12), 2, 1, 2, 1),  # so many windows that those which do not overlap are taken at once
    (2, (5, 16), 3, 2, 1, 2),  # the same, and pixels that no window sees
    (5, (8, 7), 4, 4, 1, 1),
]
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def weights_for(geometry, seed=1):
    channels, size, field, stride, maps, block = geometry
    places = (windows(length, field, stride) for length in size)
    return drawn(*places, maps * block**2, field, field, channels, seed=seed)


def by_definition(x, weights, stride, block):
    rows, columns, outputs, field, _, _ = weights.shape
    result = x.new_empty(len(x), outputs // block**2, rows * block, columns * block)
    for y, r, m in itertools.product(*map(range, result.shape[2:]), range(result.shape[1])):
        row, down, column, across = y // block, y % block, r // block, r % block
        seen = x[:, :, row * stride :, column * stride :][:, :, :field, :field]
        matrix = weights[row, column, (m * block + down) * block + across]
        result[:, m, y, r] = torch.einsum("bcij,ijc->b", seen, matrix)
    return result


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@every_geometry
@pytest.mark.parametrize("batch", [1, 3])
def test_answers_and_gradients_are_those_of_the_definition(geometry, batch):
    channels, size, _, stride, _, block = geometry
    x = drawn(batch, channels, *size).requires_grad_()
    weights = weights_for(geometry).requires_grad_()
    ours = local_linear(x, weights, stride=stride, block=block)
    theirs = by_definition(x, weights, stride, block)
    same(ours, theirs)
    slope = drawn(*ours.shape, seed=2)
    for mine, its in zip(grad(ours, (x, weights), slope), grad(theirs, (x, weights), slope)):
        same(mine, its)


@every_geometry
def test_the_transpose_is_the_gradient_of_the_definition(geometry):
    channels, size, _, stride, _, block = geometry
    x, weights = drawn(2, channels, *size).requires_grad_(), weights_for(geometry)
    there = by_definition(x, weights, stride, block)
    z = drawn(*there.shape, seed=2)
    back = local_linear_transposed(z, weights, size, stride=stride, block=block)
    same(back, grad(there, x, z)[0])


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_with_the_same_weights_everywhere_it_is_a_convolution(stride):
    x, filters = drawn(2, 3, 11, 8), drawn(4, 3, 3, 3, seed=1)
    places = [windows(length, 3, stride) for length in (11, 8)]
    weights = filters.permute(0, 2, 3, 1).expand(*places, -1, -1, -1, -1)
    z = local_linear(x, weights, stride=stride)
    same(z, conv2d(x, filters, stride=stride))
    back = local_linear_transposed(z, weights, (11, 8), stride=stride)
    spread = conv_transpose2d(z, filters, stride=stride)
    same(back[..., : spread.shape[2], : spread.shape[3]], spread)
    same(back.sum(), spread.sum())  # and 0 where no window sees


@every_geometry
def test_portions_see_every_window_and_no_pixel_twice_and_are_few(geometry):
    channels, (height, width), field, stride, *_ = geometry
    shape = weights_for(geometry).flatten(4).shape
    pixels = torch.arange(height * width * channels).view(height, -1, 1)
    portions = [seen.flatten() for *_, seen in disjoint(pixels, shape, stride)]
    assert all(len(seen.unique()) == len(seen) for seen in portions)
    lines = pixels.unfold(0, field, stride).unfold(1, field * channels, stride * channels)
    assert torch.equal(torch.cat(portions).sort()[0], lines.flatten().sort()[0])
    most = -(-field // stride) * field
    assert len(portions) == shape[0] * min(shape[1], most)


@every_geometry
def test_both_have_gradients_of_gradients(geometry):
    channels, size, _, stride, _, block = geometry
    x, weights = drawn(1, channels, *size).requires_grad_(), weights_for(geometry).requires_grad_()
    how = {"stride": stride, "block": block}
    z = drawn(*local_linear(x, weights, **how).shape, seed=3).requires_grad_()
    for function, inputs in (
        (lambda x, w: local_linear(x, w, **how), (x, weights)),
        (lambda z, w: local_linear_transposed(z, w, size, **how), (z, weights)),
    ):
        assert gradcheck(function, inputs, fast_mode=True)
        assert gradgradcheck(function, inputs, fast_mode=True)


def test_a_tied_reconstruction_has_the_gradient_of_both_its_uses():
    x, weights = drawn(2, 2, 5, 5), drawn(3, 3, 2, 3, 3, 2, seed=1).requires_grad_()

    def missed(weights):
        return (local_linear_transposed(local_linear(x, weights), weights, (5, 5)) - x).square()

    assert gradcheck(missed, weights, fast_mode=True)


VIEWS = {
    "other axes": lambda: drawn(7, 4, 9, 3).permute(3, 1, 0, 2),
    "every second": lambda: drawn(6, 4, 14, 18)[::2, :, 1::2, ::2],
    "an offset": lambda: drawn(5, 4, 7, 9)[2:],
    "one image, thrice": lambda: drawn(1, 4, 7, 9).expand(3, -1, -1, -1),
    "batch last": lambda: drawn(7, 9, 4, 4).permute(3, 2, 0, 1)[1:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_inputs_weights_and_slopes_may_be_views(view):
    x = VIEWS[view]().requires_grad_()
    weights = drawn(3, 8, 2, 4, 3, 3, seed=1)[:, ::2].permute(0, 1, 2, 4, 5, 3).requires_grad_()
    ours, theirs = local_linear(x, weights, stride=2), by_definition(x, weights, 2, 1)
    same(ours, theirs)
    slope = drawn(4, 2, 3, 3, seed=2).transpose(0, 3)
    for mine, its in zip(grad(ours, (x, weights), slope), grad(theirs, (x, weights), slope)):
        same(mine, its)


def test_only_the_gradient_that_is_asked_for_is_computed():
    x, weights = drawn(2, 2, 5, 5), drawn(3, 3, 2, 3, 3, 2, seed=1)
    assert not local_linear(x, weights).requires_grad
    z = drawn(2, 2, 3, 3, seed=2)
    for function, first in (
        (local_linear, x),
        (lambda z, w: local_linear_transposed(z, w, (5, 5)), z),
    ):
        both = first.clone().requires_grad_(), weights.clone().requires_grad_()
        first_alone, weights_alone = grad(function(*both).square().sum(), both)
        same(grad(function(both[0], weights).square().sum(), both[0])[0], first_alone)
        same(grad(function(first, both[1]).square().sum(), both[1])[0], weights_alone)


def test_an_empty_batch_has_no_answers_and_no_gradient():
    x, weights = drawn(0, 2, 5, 5).requires_grad_(), drawn(3, 3, 4, 3, 3, 2).requires_grad_()
    z = local_linear(x, weights, block=2)
    assert z.shape == (0, 1, 6, 6)
    assert grad(z.sum(), weights)[0].count_nonzero() == 0
    assert local_linear_transposed(z, weights, (5, 5), block=2).shape == (0, 2, 5, 5)


def test_float32_stays_float32():
    x, weights = drawn(2, 2, 5, 5).float(), drawn(3, 3, 2, 3, 3, 2, seed=1).float()
    z = local_linear(x, weights)
    assert z.dtype == local_linear_transposed(z, weights, (5, 5)).dtype == torch.float32
    exact = by_definition(x.double(), weights.double(), 1, 1)
    torch.testing.assert_close(z.double(), exact, atol=1e-5, rtol=0)


def test_a_nan_spoils_the_answers_that_see_it_and_no_other():
    x, weights = drawn(2, 1, 6, 6), drawn(4, 4, 1, 3, 3, 1, seed=1)
    x[1, 0, 0, 5] = torch.nan
    spoiled = local_linear(x, weights).isnan().nonzero().tolist()
    assert spoiled == [[1, 0, 0, 3]]


def test_nothing_inside_is_larger_than_input_weights_and_answers():
    x, weights = drawn(40, 2, 12, 14).requires_grad_(), drawn(7, 9, 4, 6, 6, 2).requires_grad_()

    def unfolded(x, weights):
        return torch.einsum("bcyxij,yxoijc->boyx", x.unfold(2, 6, 1).unfold(3, 6, 1), weights)

    allowed = max(x.numel(), weights.numel(), 40 * 4 * 7 * 9)
    for function, within in ((local_linear, True), (unfolded, False)):
        with Largest() as largest:
            grad(function(x, weights).sum(), (x, weights))
        assert (largest.numbers <= allowed) == within


def test_the_batch_stays_last_in_memory_from_layer_to_layer():
    for block in (1, 2):
        z = local_linear(drawn(4, 2, 5, 5), drawn(3, 3, 4, 3, 3, 2), block=block)
        assert z.permute(2, 3, 1, 0).is_contiguous()


@pytest.mark.parametrize(
    "size, field, stride, count",
    [(1, 1, 1, 1), (5, 5, 1, 1), (5, 3, 1, 3), (5, 2, 3, 2), (200, 18, 1, 183), (32, 10, 2, 12)],
)
def test_windows_are_counted_as_unfold_cuts_them(size, field, stride, count):
    assert windows(size, field, stride) == count == len(torch.zeros(size).unfold(0, field, stride))


X, W = drawn(2, 2, 5, 5), drawn(3, 3, 4, 3, 3, 2)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: windows(4, 5), "a window of 5 pixels does not fit on an axis of 4"),
        (lambda: windows(0, 1), "size must be a whole number of at least 1, not 0"),
        (lambda: windows(4, 0), "field must be .* at least 1, not 0"),
        (lambda: windows(4, 2.0), "field must be a whole number .*, not 2.0"),
        (lambda: windows(4, 2, -1), "stride must be .* at least 1, not -1"),
        (lambda: local_linear(X[0], W), r"\[batch, 2, height, width\], not \[2, 5, 5\]"),
        (lambda: local_linear(X[:, :1], W), r"\[batch, 2, height, width\], not \[2, 1, 5, 5\]"),
        (lambda: local_linear(X.float(), W), "torch.float64 as the weights are, not torch.float32"),
        (lambda: local_linear(X[..., 1:], W), "3 x 3 windows do not fit on 5 x 4 .* have 3 x 2"),
        (lambda: local_linear(X, W, stride=2), "3 x 3 windows do not fit on 5 x 5 .* have 2 x 2"),
        (lambda: local_linear(X[..., 3:], W), "window of 3 pixels does not fit on an axis of 2"),
        (lambda: local_linear(X, W, stride=0), "stride must be .* at least 1, not 0"),
        (lambda: local_linear(X, W, block=0), "block must be .* at least 1, not 0"),
        (lambda: local_linear(X, W, block=3), "4 outputs of a window cannot be squares of 3 x 3"),
        (lambda: local_linear(X, W[0]), r"weights must be \[rows, .*\], not \[3, 4, 3, 3, 2\]"),
        (lambda: local_linear(X, W[:, :, :0]), r"weights must be .*, not \[3, 3, 0, 3, 3, 2\]"),
        (lambda: local_linear(X, W[..., :2, :]), r"weights must be .*, not \[3, 3, 4, 3, 2, 2\]"),
        (
            lambda: local_linear_transposed(X, W, (5, 5)),
            r"must be \[batch, 4, 3, 3\], not \[2, 2, 5, 5\]",
        ),
        (
            lambda: local_linear_transposed(drawn(2, 4, 3, 3), W, (5, 6)),
            "3 x 3 windows do not fit on 5 x 6 pixels, which have 3 x 4",
        ),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def charged(geometry, device):
    """Flop of the answers, of both gradients and of the transpose, and their shapes."""
    channels, size, _, stride, _, block = geometry
    x = drawn(3, channels, *size).to(device).requires_grad_()
    weights = weights_for(geometry).to(device).requires_grad_()

    def all_of_it():
        z = local_linear(x, weights, stride=stride, block=block)
        back = local_linear_transposed(z, weights, size, stride=stride, block=block)
        return [tuple(t.shape) for t in (z, *grad(z.sum(), [x, weights]), back)]

    charges, shapes = counted(all_of_it)
    return sum(flops for _, flops, _ in charges), shapes


@every_geometry
def test_without_values_as_many_flop_are_charged_for_as_many_numbers(geometry):
    weights = weights_for(geometry).numel()
    assert charged(geometry, "meta") == charged(geometry, "cpu")
    assert charged(geometry, "cpu")[0] == 4 * 2 * 3 * weights  # two flop a weight and image, each
