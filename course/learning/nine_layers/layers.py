"""Filter an image without sharing weights, pool the answers' energy, and even out their contrast.

`LocalLinear`, `L2Pool` and `LocalContrastNorm`, three times over, are the nine layers of Le et al.
2012 and of Coates et al. 2013. All take and return [batch, maps, rows, columns].
"""

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d

from course.learning.convolution.local_linear import (
    check_input,
    check_positive,
    local_linear,
    local_linear_transposed,
    windows,
)
from course.learning.samples import check_above_zero


class LocalLinear(nn.Module):
    """Untied linear filters: [batch, channels, *side] -> [batch, maps, rows, columns].

    Of the `windows(side, field, stride)` windows along each axis, each has a dense matrix of its
    own, with no bias, for a block x block square of answers in every map. So there are
    rows = block * windows answers along an axis, and
    windows down * windows across * maps * block**2 * field**2 * channels weights.
    `side` is a number, or (height, width). Weights start as Gaussians of about unit norm.
    Source: Le et al. 2012 (untied); Coates et al. 2013 (blocks).
    """

    def __init__(self, channels, side, field, maps, *, stride=1, block=1, seed):
        super().__init__()
        for name, value in (("channels", channels), ("maps", maps), ("block", block)):
            check_positive(name, value)
        self.channels, self.maps, self.field = channels, maps, field
        self.stride, self.block = stride, block
        height, width = self.size = side if isinstance(side, tuple) else (side, side)
        rows, columns = windows(height, field, stride), windows(width, field, stride)
        self.out_size = (rows * block, columns * block)
        shape = (rows, columns, maps * block**2, field, field, channels)
        self.weight = nn.Parameter(torch.empty(shape))
        if not self.weight.is_meta:
            generator = torch.Generator(self.weight.device).manual_seed(seed)
            nn.init.normal_(self.weight, std=(field**2 * channels) ** -0.5, generator=generator)

    def forward(self, x):
        """W x: x [batch, channels, *size] -> [batch, maps, *out_size]."""
        check_input(x, self.channels, self.weight.dtype, self.size)
        return local_linear(x, self.weight, stride=self.stride, block=self.block)

    def transpose(self, z):
        """W^T z, a tied decoder: z [batch, maps, *out_size] -> [batch, channels, *size]."""
        return local_linear_transposed(
            z, self.weight, self.size, stride=self.stride, block=self.block
        )

    def filters(self):
        """The filter of every answer as a picture: [maps, *out_size, channels, field, field]."""
        squares = self.weight.unflatten(2, (self.maps, self.block, self.block))
        pictures = squares.permute(2, 0, 3, 1, 4, 7, 5, 6)
        return pictures.flatten(3, 4).flatten(1, 2)

    def extra_repr(self):
        return (
            f"{self.channels} x {self.size[0]} x {self.size[1]} -> "
            f"{self.maps} x {self.out_size[0]} x {self.out_size[1]}, "
            f"field={self.field}, stride={self.stride}, block={self.block}"
        )


class L2Pool(nn.Module):
    """sqrt(eps + sum of squares) over windows of each map: it answers to energy, not to sign.

    x [batch, maps, height, width] -> [batch, maps, windows(height), windows(width)]. The papers'
    uniform weights are 1 here: weights H would give sqrt(H) sqrt(eps / H + sum), the same up to a
    scale and another eps. eps > 0 keeps the slope finite where all is 0.
    Source: Le et al. 2012.
    """

    def __init__(self, field, stride=1, eps=1e-4):
        super().__init__()
        check_positive("field", field)
        check_positive("stride", stride)
        check_above_zero("eps", eps)
        self.field, self.stride, self.eps = field, stride, eps

    def forward(self, x):
        _check_maps(x)
        for length in x.shape[2:]:
            windows(length, self.field, self.stride)
        energy = avg_pool2d(x * x, self.field, self.stride, divisor_override=1)
        return (self.eps + energy).sqrt()

    def extra_repr(self):
        return f"field={self.field}, stride={self.stride}, eps={self.eps}"


class LocalContrastNorm(nn.Module):
    """Subtract the mean around each place, divide by the spread: x [batch, maps, height, width].

        g = x - G x,   y = g / max(c, sqrt(G g^2))

    G averages over all maps and field x field places with Gaussian weights of width `sigma`
    (pixels), which add up to 1. Beyond the border are zeros, in x and in g alike. Where the spread
    is below `c`, noise is not blown up. The papers give no sigma: it is ours.
    Source: Le et al. 2012; Jarrett et al. 2009.
    """

    def __init__(self, field=5, sigma=1.0, c=0.01):
        super().__init__()
        check_positive("field", field)
        if field % 2 == 0:
            raise ValueError(f"field must be odd, so that it has a middle, not {field}")
        check_above_zero("sigma", sigma)
        check_above_zero("c", c)
        self.field, self.sigma, self.c = field, sigma, c

    def forward(self, x):
        _check_maps(x)
        g = x - self._average(x)
        # The root comes after the guard: its slope at 0 is infinite.
        return g / self._average(g * g).clamp(min=self.c**2).sqrt()

    def window(self):
        """The Gaussian weights of one map, [field, field], adding up to 1: float64."""
        away = torch.arange(self.field, dtype=torch.float64) - self.field // 2
        weights = torch.exp(-(away**2) / (2 * self.sigma**2))
        weights = weights / weights.sum()
        return weights[:, None] * weights

    def _average(self, x):
        weights = self.window().to(x)[None, None]
        return conv2d(x.mean(1, keepdim=True), weights, padding=self.field // 2)

    def extra_repr(self):
        return f"field={self.field}, sigma={self.sigma}, c={self.c}"


def _check_maps(x):
    if x.dim() != 4 or 0 in x.shape[1:]:
        raise ValueError(f"the input must be [batch, maps, height, width], not {list(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"the input must be floating point, not {x.dtype}")
