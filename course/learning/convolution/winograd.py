"""Convolve with 3 x 3 filters in fewer multiplications: tile by tile, through small matrices.

`winograd` does it for images; `one_tile` shows the trick on a row of 4 or 6 numbers, in exact
fractions if they are; TRANSFORMS holds the matrices; `winograd_multiplications` counts.
"""

from fractions import Fraction
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from course.learning.convolution.tied import checked_sizes


class Transform(NamedTuple):
    """outputs [tile] = inverse @ ((of_taps @ taps [3]) * (of_data @ data [tile + 2]))."""

    of_data: list  # B^T in the paper
    of_taps: list  # G
    inverse: list  # A^T


def _fractions(*rows):
    return [[Fraction(entry) for entry in row.split()] for row in rows]


# By outputs per tile: F(2, 3) and F(4, 3) of Lavin and Gray 2015, arXiv 1509.09308, section 4.
TRANSFORMS = {
    2: Transform(
        _fractions("1 0 -1 0", "0 1 1 0", "0 -1 1 0", "0 -1 0 1"),
        _fractions("1 0 0", "1/2 1/2 1/2", "1/2 -1/2 1/2", "0 0 1"),
        _fractions("1 1 1 0", "0 1 -1 1"),
    ),
    4: Transform(
        _fractions(
            *("4 0 -5 0 1 0", "0 -4 -4 1 1 0", "0 4 -4 -1 1 0"),
            *("0 -2 -1 2 1 0", "0 2 -1 -2 1 0", "0 4 0 -5 0 1"),
        ),
        _fractions(
            *("1/4 0 0", "-1/6 -1/6 -1/6", "-1/6 1/6 -1/6"),
            *("1/24 1/12 1/6", "1/24 -1/12 1/6", "0 0 1"),
        ),
        _fractions("1 1 1 1 1 0", "0 1 -1 2 -2 0", "0 1 1 4 4 0", "0 1 -1 8 -8 1"),
    ),
}


def one_tile(data, taps):
    """data [4 or 6] under taps [3]: 2 outputs from 4 products (not 6), or 4 from 6 (not 12).

    Exact for whole numbers and fractions. Only number * tap counts as a product: what TRANSFORMS
    does to the data is done once for all filters of a layer, and to the taps once for all tiles.
    Raises ValueError for other lengths. Source: Winograd 1980; Lavin and Gray 2015, section 4.
    """
    tile = len(data) - 2
    if len(taps) != 3 or tile not in TRANSFORMS:
        raise ValueError(f"a tile has 4 or 6 numbers and 3 taps, not {len(data)} and {len(taps)}")
    transform = TRANSFORMS[tile]
    pairs = zip(_apply(transform.of_data, data), _apply(transform.of_taps, taps), strict=True)
    return _apply(transform.inverse, [number * tap for number, tap in pairs])


def winograd(images, filters, *, tile=2, stride=1, padding=0, dilation=1, groups=1):
    """`direct` of `tied.py` by F(tile x tile, 3 x 3): tile 2 or 4, same shapes and arguments.

    Tiles [tile + 2, tile + 2] overlap by 2; transformed, each is one product per number, summed
    over channels: (tile + 2)^2 matrix products. Tile 4 needs fewer and rounds worse than tile 2.
    Raises ValueError but for 3 x 3 filters, stride 1, dilation 1. Source: Lavin and Gray 2015.
    """
    rows, across = checked_sizes(images, filters, stride, padding, dilation, groups)
    _check(filters, tile, stride, dilation)
    of_data, of_taps, inverse = (_both_axes(each, images) for each in TRANSFORMS[tile])
    down, right = -(-rows // tile), -(-across // tile)  # the last tile may hang over
    tiles = _tiles(images, tile, padding, down, right)  # [numbers, batch, channels, down * right]
    data = (of_data @ tiles.flatten(1)).view_as(tiles).unflatten(2, (groups, -1))
    taps = of_taps @ filters.flatten(2).movedim(2, 0).flatten(1)
    taps = taps.unflatten(1, (1, groups, -1, filters.shape[1]))  # [numbers, 1, groups, out, chann.]
    products = (taps @ data).flatten(2, 3)  # [numbers, batch, all out, down * right]
    pixels = (inverse @ products.flatten(1)).unflatten(1, products.shape[1:])
    return _assembled(pixels, tile, down)[..., :rows, :across]


def winograd_multiplications(images, filters, *, tile=2, padding=0, groups=1):
    """Multiplications of `winograd` but for transforms: (tile + 2)^2 per tile and filter plane."""
    rows, across = checked_sizes(images, filters, 1, padding, 1, groups)
    _check(filters, tile, 1, 1)
    tiles = len(images) * -(-rows // tile) * -(-across // tile)
    return tiles * (tile + 2) ** 2 * filters.shape[0] * filters.shape[1]


def _check(filters, tile, stride, dilation):
    if tile not in TRANSFORMS:
        raise ValueError(f"a tile has {' or '.join(map(str, TRANSFORMS))} outputs, not {tile}")
    if filters.shape[2:] != (3, 3):
        height, width = filters.shape[2:]
        raise ValueError(f"winograd is for 3 x 3 filters only, not {height} x {width}")
    if (stride, dilation) != (1, 1):
        raise ValueError(f"winograd needs stride 1 and dilation 1, not {stride} and {dilation}")


def _apply(matrix, vector):
    return [sum(entry * x for entry, x in zip(row, vector, strict=True)) for row in matrix]


def _both_axes(matrix, like):
    """M as one matrix on flattened squares: kron(M, M) @ vec(x) = vec(M @ x @ M^T)."""
    matrix = torch.tensor([list(map(float, row)) for row in matrix], dtype=torch.float64)
    return torch.kron(matrix, matrix).to(like)


def _tiles(images, tile, padding, down, right):
    """Squares that overlap by 2: [numbers = (tile + 2)^2, batch, channels, down * right]."""
    height, width = images.shape[2:]
    below, behind = tile * down + 2 - height - padding, tile * right + 2 - width - padding
    padded = pad(images, [padding, behind, padding, below])
    squares = padded.unfold(2, tile + 2, tile).unfold(3, tile + 2, tile)
    return squares.permute(4, 5, 0, 1, 2, 3).flatten(4).flatten(0, 1)


def _assembled(pixels, tile, down):
    """pixels [tile^2, batch, out, down * right] at their places: [batch, out, rows, columns]."""
    pixels = pixels.unflatten(0, (tile, tile)).unflatten(4, (down, -1))
    return pixels.permute(2, 3, 4, 0, 5, 1).flatten(4, 5).flatten(2, 3)
