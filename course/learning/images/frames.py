"""Cut small grey frames, of which some show a face, out of pictures of faces and of anything.

`frames` mixes `face_frames` with those of `distractor_frames` that `match_smoothness` keeps:
otherwise faces could be told by their smoothness alone.
"""

import math
from typing import NamedTuple

import torch
from torch.nn.functional import interpolate

from course.learning.images.photographs import check_image
from course.learning.nine_layers.layers import LocalContrastNorm
from course.learning.samples import check_above_zero

SIDE = 32
DISTRACTOR_SIDES = (24, 300)
LEAST_SPREAD = 0.04  # a flatter square shows sky or a wall
SURPLUS = 3  # distractors cut for each that is kept


class Frames(NamedTuple):
    """Frames [count, 1, 32, 32] in [0, 1], what they show [count], and whom or where [count].

    `labels` are 1 for a face and 0 for none; `groups` are the number of the person, 0 or more, or
    -1, -2, ... for the first, second, ... photograph: halves with no group in common are honest.
    """

    images: torch.Tensor
    labels: torch.Tensor
    groups: torch.Tensor


def frames(faces, photographs, count, share, seed):
    """Frames: `share` of the `count` from Faces, the others as smooth, from a list of photographs.

    Faces come first. Without faces (`share` 0) distractors are still as smooth as faces.
    """
    if not 0 <= share < 1:
        raise ValueError(f"the share of faces must be at least 0 and below 1, not {share}")
    wanted = round(share * count)
    shown = face_frames(faces, max(wanted, min(count, 500)), seed)
    others = distractor_frames(photographs, SURPLUS * (count - wanted), seed + 1)
    kept = match_smoothness(others.images, shown.images, count - wanted, seed + 2)
    parts = [Frames(*(each[:wanted] for each in shown)), Frames(*(each[kept] for each in others))]
    return Frames(*(torch.cat(pair) for pair in zip(*parts, strict=True)))


def face_frames(faces, count, seed):
    """`count` Frames of Faces: the face nearly fills each, and half of them are mirrored."""
    generator = _generator(count, seed)
    which = torch.randint(len(faces.images), (count,), generator=generator)
    sides = _uniform(count, faces.place.sides, generator)
    reach = faces.place.jitter
    centres = torch.tensor(faces.place.centre) + _uniform((count, 2), (-reach, reach), generator)
    squares = [
        square(faces.images[k], centre - side / 2, side)
        for k, centre, side in zip(which.tolist(), centres, sides.tolist(), strict=True)
    ]
    mirrored = torch.rand(count, generator=generator) < 0.5
    squares = torch.stack(squares)
    squares[mirrored] = squares[mirrored].flip(-1)
    images = random_lighting(squares, generator)
    return Frames(images, torch.ones(count, dtype=torch.int64), faces.persons[which])


def distractor_frames(photographs, count, seed):
    """`count` Frames of squares anywhere in `photographs`, large and small, none of them flat."""
    generator = _generator(count, seed)
    if not photographs:
        raise ValueError("distractors are cut from 1 photograph or more, not from 0")
    for photograph in photographs:
        check_image(photograph)
    squares, groups = [], []
    for _ in range(100 * count):
        which = int(torch.randint(len(photographs), (), generator=generator))
        cut = _anywhere(photographs[which], generator)
        if cut.std() >= LEAST_SPREAD:
            squares.append(cut)
            groups.append(-1 - which)
        if len(squares) == count:
            images = random_lighting(torch.stack(squares), generator)
            return Frames(images, torch.zeros(count, dtype=torch.int64), torch.tensor(groups))
    raise ValueError(
        f"at least 1 in 100 squares must vary by {LEAST_SPREAD} or more, and only {len(squares)} "
        f"of {100 * count} did"
    )


def square(image, corner, side):
    """The square of `side` pixels at `corner` (down, across) of `image`, resized to [32, 32].

    Rounded to whole pixels, and moved inside where it would reach over an edge.
    """
    side = min(round(side), *image.shape)
    down, across = (
        min(max(round(float(at)), 0), length - side)
        for at, length in zip(corner, image.shape, strict=True)
    )
    cut = image[None, None, down : down + side, across : across + side]
    return interpolate(cut, (SIDE, SIDE), mode="bilinear", antialias=True)[0, 0]


def random_lighting(squares, generator):
    """`squares` [count, 32, 32] as images [count, 1, 32, 32] of random contrast and brightness."""
    spread, mean = torch.std_mean(squares, dim=(1, 2), keepdim=True)
    contrast = _uniform((len(squares), 1, 1), (math.log(0.1), math.log(0.25)), generator).exp()
    brightness = _uniform((len(squares), 1, 1), (0.35, 0.65), generator)
    return ((squares - mean) / spread * contrast + brightness).clamp(0, 1)[:, None]


def smoothness(images):
    """Three numbers [count, 3] that say how coarse the texture of `images` [count, 1, 32, 32] is.

    Log energies of the contrast-normalised image blurred by a Gaussian of 1 and of 2 pixels, and
    the log of the mean squared step from pixel to pixel over the variance.
    """
    even = LocalContrastNorm(9, 3.0, 0.02)(images)
    energies = [_blurred(even, sigma).square().mean(dim=(1, 2, 3)).log() for sigma in (1, 2)]
    steps = images.diff(dim=-1).square().mean(dim=(1, 2, 3))
    return torch.stack([*energies, (steps / images.var(dim=(1, 2, 3))).log()], dim=1)


def match_smoothness(images, as_these, count, seed):
    """Row numbers [count] of `images` whose smoothness is distributed as that of `as_these`.

    For each of `count` random ones of these the nearest image that is not yet taken.
    """
    if len(images) < count:
        raise ValueError(f"{count} frames cannot be chosen from {len(images)}")
    aims, found = smoothness(as_these), smoothness(images)
    spread = aims.std(dim=0)
    chosen = torch.randint(len(aims), (count,), generator=_generator(count, seed))
    distances = torch.cdist(aims[chosen] / spread, found / spread)
    kept = []
    for row in distances:
        kept.append(int(row.argmin()))
        distances[:, kept[-1]] = math.inf
    return torch.tensor(kept)


def _anywhere(photograph, generator):
    largest = min(DISTRACTOR_SIDES[1], *photograph.shape)
    side = round(
        math.exp(_uniform((), [math.log(s) for s in (DISTRACTOR_SIDES[0], largest)], generator))
    )
    corner = [_uniform((), (0, length - side), generator) for length in photograph.shape]
    return square(photograph, corner, side)


def _blurred(images, sigma):
    taps = torch.arange(-3 * sigma, 3 * sigma + 1)
    weights = torch.exp(-(taps**2) / (2 * sigma**2)).to(images)
    weights = weights / weights.sum()
    down = torch.nn.functional.conv2d(images, weights[None, None, :, None], padding="same")
    return torch.nn.functional.conv2d(down, weights[None, None, None], padding="same")


def _uniform(shape, between, generator):
    low, high = between
    shape = (shape,) if isinstance(shape, int) else shape
    return low + (high - low) * torch.rand(shape, generator=generator)


def _generator(count, seed):
    check_above_zero("the number of frames", count)
    return torch.Generator().manual_seed(seed)
