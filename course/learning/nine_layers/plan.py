"""What a network of nine layers is made of, as data, and what it costs before it is built.

A `Plan` has a `Geometry` for each of its three stages; `sizes` counts neurons, weights and flop.
"""

from typing import NamedTuple

from course.learning.convolution.local_linear import windows


class Norm(NamedTuple):
    """A LocalContrastNorm: places along a side of its window, width in places, least spread."""

    field: int
    sigma: float
    c: float


class Geometry(NamedTuple):
    """One stage: filters of field x field pixels, `stride` apart, in `maps`; pools; perhaps a Norm.

    `penalty` is lambda, the price of activity while it is trained.
    """

    field: int
    stride: int
    maps: int
    penalty: float
    pool: int
    pool_stride: int
    norm: Norm = None
    block: int = 1


class Plan(NamedTuple):
    """A network for images [channels, side, side]; `even` is a Norm of the images, or None."""

    channels: int
    side: int
    even: Norm
    stages: tuple


class Size(NamedTuple):
    """What a stage has and costs: sides and neurons of its layers, weights, flop of one image.

    `flop` are those of its filters and of its norm, forward; the pool's are few and not counted.
    """

    simple_side: int
    pooled_side: int
    weights: int
    simple: int
    pooled: int
    flop: int


WIDE = Norm(9, 3.0, 0.02)
BETWEEN = Norm(9, 3.0, 0.01)

# The papers' order of layers at a small size; all sizes are ours, found by trying.
NORMED = Plan(1, 32, WIDE, (
    Geometry(16, 2, 64, 1.0, 3, 1, BETWEEN), Geometry(4, 1, 8, 0.3, 2, 1, BETWEEN),
    Geometry(2, 1, 8, 0.3, 1, 1, BETWEEN),
))  # fmt: skip

# Le et al. 2012: strides of 1 are inferred from «1 billion connections», and the sigma is ours.
BILLION = Plan(3, 200, None, 3 * (Geometry(18, 1, 8, 0.1, 5, 1, Norm(5, 1.0, 0.01)),))


def sizes(plan):
    """The Size of each stage of a Plan, by formula: nothing is built."""
    counted = []
    for geometry, channels, side in inputs_of_stages(plan):
        simple_side, pooled_side = _sides(geometry, side)
        seen = channels * geometry.field**2
        weights = geometry.maps * simple_side**2 * seen
        normed = 4 * (geometry.norm.field * pooled_side) ** 2 if geometry.norm else 0
        simple, pooled = (geometry.maps * n**2 for n in (simple_side, pooled_side))
        counted.append(
            Size(simple_side, pooled_side, weights, simple, pooled, 2 * weights + normed)
        )
    return counted


def inputs_of_stages(plan):
    """For each stage: its geometry, and channels and side of what it sees."""
    channels, side = plan.channels, plan.side
    for geometry in plan.stages:
        yield geometry, channels, side
        channels, side = geometry.maps, _sides(geometry, side)[1]


def _sides(geometry, side):
    simple = windows(side, geometry.field, geometry.stride) * geometry.block
    return simple, windows(simple, geometry.pool, geometry.pool_stride)
