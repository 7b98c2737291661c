import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import conv2d, lp_pool2d

from course.learning.nine_layers.layers import L2Pool, LocalContrastNorm, LocalLinear


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def golden():
    """One map [1, 1, 7, 7] with h_ij = ((3 i + 5 j) mod 7) / 7."""
    i, j = torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")
    return (((3 * i + 5 * j) % 7).double() / 7)[None, None]


@pytest.mark.parametrize("block", [1, 2])
def test_every_answer_is_its_filter_times_what_it_sees(block):
    layer = LocalLinear(2, (9, 6), 3, 4, stride=2, block=block, seed=0).double()
    x, filters = drawn(3, 2, 9, 6), layer.filters()
    z = layer(x)
    assert z.shape[1:] == filters.shape[:3] == (4, *layer.out_size) == (4, 4 * block, 2 * block)
    for m, row, column in [(0, 0, 0), (3, 4 * block - 1, 2 * block - 1), (1, 2 * block - 1, block)]:
        y, left = row // block * 2, column // block * 2
        seen = x[:, :, y : y + 3, left : left + 3]
        same(z[:, m, row, column], (seen * filters[m, row, column]).sum(dim=(1, 2, 3)))


@pytest.mark.parametrize("block", [1, 2])
def test_transpose_is_the_adjoint(block):
    layer = LocalLinear(2, (9, 6), 3, 4, stride=2, block=block, seed=0).double()
    x, z = drawn(3, 2, 9, 6), drawn(3, 4, *layer.out_size, seed=1)
    same((layer(x) * z).sum(), (x * layer.transpose(z)).sum())
    assert layer.transpose(z).shape == x.shape


def test_orthonormal_filters_that_see_everything_reconstruct_it():
    layer = LocalLinear(2, 3, 3, 18, seed=0).double()
    with torch.no_grad():
        layer.weight.copy_(torch.linalg.qr(drawn(18, 18))[0].reshape(layer.weight.shape))
    x = drawn(5, 2, 3, 3, seed=1)
    same(layer.transpose(layer(x)), x)


def test_weights_have_about_unit_norm_and_follow_the_seed():
    first, again, other = (
        LocalLinear(3, 12, 10, 64, seed=seed).weight.detach() for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    norms = first.flatten(3).norm(dim=3)
    assert abs(norms.mean() - 1) < 0.01 and norms.std() < 0.1


def test_a_billion_weights_are_counted_without_memory():
    counted, x = [], torch.empty(2, 3, 200, 200, device="meta")
    for _ in range(3):  # Le et al. 2012, with stride 1
        with torch.device("meta"):
            layer = LocalLinear(x.shape[1], x.shape[2], 18, 8, seed=0)
        counted.append(layer.weight.numel())
        x = LocalContrastNorm()(L2Pool(5)(layer(x)))
    assert counted == [260_410_464, 544_195_584, 412_252_416]
    assert x.shape == (2, 8, 137, 137)


def test_a_layer_trains_in_float32_and_is_stored():
    layer = LocalLinear(1, (6, 8), 3, 2, stride=1, block=2, seed=0)
    x = drawn(4, 1, 6, 8).float()
    (layer.transpose(layer(x)) - x).square().sum().backward()
    assert layer.weight.grad.isfinite().all() and layer.weight.grad.count_nonzero() > 0
    other = LocalLinear(1, (6, 8), 3, 2, stride=1, block=2, seed=1)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))
    assert str(layer) == "LocalLinear(1 x 6 x 8 -> 2 x 8 x 12, field=3, stride=1, block=2)"


def test_golden_values_of_pooling():
    around_the_middle = (0, 0, 2, 2)  # the window with its centre at (3, 3)
    assert math.isclose(L2Pool(3, eps=1e-15)(golden())[around_the_middle], 1.5452362609)
    assert math.isclose(L2Pool(3, eps=0.01)(golden())[around_the_middle], 1.5484686313)


@pytest.mark.parametrize("field, stride", [(1, 1), (3, 1), (3, 2), (2, 3), (5, 5)])
def test_pooling_sums_the_squares_of_each_map(field, stride):
    x = drawn(2, 3, 9, 6)
    same(L2Pool(field, stride, 1e-15)(x), lp_pool2d(x, 2, field, stride))
    same(L2Pool(field, stride, 0.5)(x), (lp_pool2d(x, 2, field, stride) ** 2 + 0.5).sqrt())
    same(L2Pool(field, stride)(-x), L2Pool(field, stride)(x))


def test_golden_values_of_contrast_normalisation():
    y = LocalContrastNorm(5, sigma=1.0, c=0.01)(golden())[0, 0]
    picked = [y[0, 0], y[2, 4], y[3, 2], y[5, 6], y.sum(), y.square().sum()]
    expected = [-0.8713009778, 1.0518974578, 1.0578071792, 0.5418024333, 15.6913035805]
    same(torch.stack(picked), torch.tensor([*expected, 62.1788225385], dtype=torch.float64))


@pytest.mark.parametrize("field, maps", [(1, 3), (3, 2), (5, 4), (9, 1)])
def test_contrast_is_normalised_by_maps_and_places_together(field, maps):
    norm, x = LocalContrastNorm(field, sigma=0.8, c=0.3), drawn(2, maps, 6, 7)
    away = (torch.arange(field) - field // 2).double() ** 2
    gaussian = torch.exp(-(away[:, None] + away) / (2 * 0.8**2)).expand(1, maps, -1, -1)
    gaussian = gaussian / gaussian.sum()
    g = x - conv2d(x, gaussian, padding=field // 2)
    spread = conv2d(g * g, gaussian, padding=field // 2).sqrt()
    assert (spread < 0.3).any() != (spread >= 0.3).all()
    same(norm(x), g / spread.clamp(min=0.3))
    same(norm.window().sum(), torch.tensor(1.0).double())


def test_contrast_does_not_depend_on_brightness_or_on_scale_away_from_the_guard():
    norm, x = LocalContrastNorm(5, sigma=1.5), drawn(1, 2, 12, 12)
    same(norm(7 * x), norm(x))
    same(norm(-x), -norm(x))
    same(norm(x + 3)[..., 4:-4, 4:-4], norm(x)[..., 4:-4, 4:-4])  # the border sees zeros beyond it


@pytest.mark.parametrize(
    "layer", [L2Pool(2, 1, 0.1), L2Pool(3, 2), LocalContrastNorm(3), LocalContrastNorm(5, 1, 0.9)],
    ids=str,
)  # fmt: skip
def test_gradients(layer):
    x = drawn(2, 2, 5, 4).requires_grad_()
    assert gradcheck(layer, x) and gradgradcheck(layer, x, fast_mode=True)
    batch_last = drawn(5, 4, 2, 2).permute(3, 2, 0, 1).requires_grad_()
    assert gradcheck(layer, batch_last)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e-20, 1e15])
@pytest.mark.parametrize("layer", [L2Pool(3), LocalContrastNorm(5)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_flat_input_gives_finite_values_and_slopes(layer, value, dtype):
    x = torch.full((1, 2, 6, 6), value, dtype=dtype, requires_grad=True)
    y = layer(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all() and slope.isfinite().all() and y.dtype == slope.dtype == dtype


def test_below_the_guard_a_place_is_divided_by_c():
    x = 1e-6 * drawn(1, 2, 6, 6)
    norm, plain = LocalContrastNorm(3, c=0.01), LocalContrastNorm(3, c=1.0)
    same(norm(x), plain(x) / 0.01)


def local(channels=2, side=5, field=3, maps=4, **how):
    return LocalLinear(channels, side, field, maps, seed=0, **how)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: local(field=6), "a window of 6 pixels does not fit on an axis of 5"),
        (lambda: local(side=(9, 2)), "a window of 3 pixels does not fit on an axis of 2"),
        (lambda: local(side=0), "size must be .* at least 1, not 0"),
        (lambda: local(field=0), "field must be .* at least 1, not 0"),
        (lambda: local(channels=0), "channels must be .* at least 1, not 0"),
        (lambda: local(maps=-1), "maps must be .* at least 1, not -1"),
        (lambda: local(stride=0), "stride must be .* at least 1, not 0"),
        (lambda: local(block=1.5), "block must be a whole number .*, not 1.5"),
        (lambda: local()(torch.zeros(2, 5, 5)), r"\[batch, 2, 5, 5\], not \[2, 5, 5\]"),
        (lambda: local()(torch.zeros(1, 3, 5, 5)), r"\[batch, 2, 5, 5\], not \[1, 3, 5, 5\]"),
        (lambda: local()(torch.zeros(1, 2, 5, 6)), r"\[batch, 2, 5, 5\], not \[1, 2, 5, 6\]"),
        (lambda: local()(torch.zeros(1, 2, 5, 5).long()), "as the weights are, not torch.int64"),
        (lambda: local().transpose(torch.zeros(1, 4, 5, 5)), r"4, 3, 3\], not \[1, 4, 5, 5\]"),
        (lambda: L2Pool(0), "field must be .* at least 1, not 0"),
        (lambda: L2Pool(3, 0), "stride must be .* at least 1, not 0"),
        (lambda: L2Pool(3, eps=0), "eps must be above 0, not 0"),
        (lambda: L2Pool(3, eps=math.nan), "eps must be above 0, not nan"),
        (lambda: L2Pool(3)(torch.zeros(1, 1, 2, 9)), "window of 3 pixels does not fit .* of 2"),
        (lambda: L2Pool(3)(torch.zeros(9, 9)), r"\[batch, maps, .*, not \[9, 9\]"),
        (lambda: L2Pool(3)(torch.zeros(1, 1, 9, 9).int()), "floating point, not torch.int32"),
        (lambda: LocalContrastNorm(4), "field must be odd, .*, not 4"),
        (lambda: LocalContrastNorm(0), "field must be .* at least 1, not 0"),
        (lambda: LocalContrastNorm(5, sigma=0), "sigma must be above 0, not 0"),
        (lambda: LocalContrastNorm(5, c=-1), "c must be above 0, not -1"),
        (lambda: LocalContrastNorm(5)(torch.zeros(2, 0, 9, 9)), r"not \[2, 0, 9, 9\]"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
