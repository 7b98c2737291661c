"""Ask what single neurons respond to: how well does one tell faces, what excites it most?

`selectivity` is the papers' protocol and `held_out_selectivity` the one that does not choose on the
test; `optimal_stimulus` climbs to what a neuron likes best; `shifted`, `scaled` and `rotated` move
what it sees.
"""

import math
from typing import NamedTuple

import torch
from torch.nn.functional import affine_grid, grid_sample

from course.learning.samples import check_above_zero, check_samples
from course.learning.training.classifier import halves

THRESHOLDS = 20
SMALLEST_STEP = 1e-6


class Stimulus(NamedTuple):
    """An image of norm 1 [1, channels, side, side], the responses on the way to it [steps + 1]."""

    image: torch.Tensor
    responses: torch.Tensor


class Selectivity(NamedTuple):
    """How well a neuron tells two classes: it says 1 where its response exceeds the threshold."""

    accuracy: float
    neuron: int
    threshold: float


def best_thresholds(responses, labels):
    """The best accuracy [neurons] of each neuron and its threshold [neurons].

    `responses` [frames, neurons], `labels` [frames] of 0 and 1. Of 20 thresholds at equal steps
    from a neuron's lowest response to its highest, both included, the first that is best. One sign
    only: a neuron that falls silent at class 1 does not tell it. A constant neuron never fires.
    Source: Le et al. 2012, experiments on faces; whether they count both ends is not known.
    """
    _check(responses, labels)
    low, high = responses.aminmax(dim=0)
    if (low == high).all():
        raise ValueError(f"a neuron that tells classes must vary, and all {len(low)} are constant")
    steps = torch.linspace(0, 1, THRESHOLDS, dtype=responses.dtype, device=responses.device)
    thresholds = torch.lerp(low[:, None], high[:, None], steps)  # [neurons, 20], rising
    below = torch.searchsorted(thresholds, responses.T.contiguous())  # so many are exceeded
    signs = torch.where(labels == 1, 1, -1).expand(below.shape)
    counts = torch.zeros(len(low), THRESHOLDS + 1, dtype=signs.dtype, device=signs.device)
    counts.scatter_add_(1, below, signs)
    fired = counts.flip(1).cumsum(dim=1).flip(1)[:, 1:]  # faces minus others above each threshold
    right = ((labels != 1).sum() + fired).to(low.dtype) / len(labels)
    best, at = right.max(dim=1)
    return best, thresholds.gather(1, at[:, None])[:, 0]


def selectivity(responses, labels):
    """The Selectivity of the best neuron, neuron and threshold chosen on the very frames scored.

    The papers' protocol: best of many on the test itself, so it flatters. Arguments as in
    `best_thresholds`.
    """
    accuracies, thresholds = best_thresholds(responses, labels)
    neuron = int(accuracies.argmax())
    return Selectivity(accuracies[neuron].item(), neuron, thresholds[neuron].item())


def score(chosen, responses, labels):
    """The accuracy of the neuron and threshold in `chosen`, a Selectivity, on other frames."""
    fires = responses[:, chosen.neuron] > chosen.threshold
    return (fires == (labels == 1)).double().mean().item()


def held_out_selectivity(responses, labels, groups, seed):
    """The accuracy of a neuron on people and places that had no part in its choice, a float.

    Half of the groups [frames] of each class choose neuron and threshold, the other half score
    them; then the halves swap, and the two accuracies are averaged.
    """
    _check(responses, labels)
    half = halves(labels, groups, seed)
    accuracies = [
        score(selectivity(responses[choose], labels[choose]), responses[~choose], labels[~choose])
        for choose in (half, ~half)
    ]
    return sum(accuracies) / 2


def linear_filters(images, count, seed):
    """Responses [frames, count] of random linear filters that see all of `images` [frames, ...].

    A control: the best of many such filters, which Le et al. 2012 found at 74 % for 100 000.
    """
    pixels = images.flatten(1)
    generator = torch.Generator().manual_seed(seed)
    filters = torch.randn(pixels.shape[1], count, generator=generator).to(pixels)
    return pixels @ (filters / filters.norm(dim=0))


def principal_components(images, shown, count):
    """`images` [frames, ...] along the `count` directions in which `shown` [others, ...] vary most.

    The largest is the last of [frames, count]; nothing is subtracted, and the signs are any.
    """
    seen = shown.flatten(1)
    return images.flatten(1) @ torch.linalg.eigh(seen.T @ seen).eigenvectors[:, -count:]


def optimal_stimulus(response, start, steps):
    """The Stimulus that maximises `response(image) -> [1]` among images of norm 1.

    From `start` [1, channels, side, side], such as noise, along the slope and back to norm 1; a
    step that would not help is halved until it does. One gradient and some responses a step.
    Source: Le et al. 2012, who print «argmin»; read here as the largest response.
    """
    if steps < 0 or not start.isfinite().all() or not start.any():
        raise ValueError(f"needs 0 steps or more, not {steps}, and a finite start that is not 0")
    image, size, seen = _unit(start.detach()), 1.0, []
    value = response(image).sum().detach()
    for _ in range(steps):
        seen.append(value)
        image, value, size = _climb(response, image, value, size)
    return Stimulus(image, torch.stack([*seen, value]))


def shifted(images, pixels):
    """`images` [count, channels, height, width] moved `pixels` to the right, borders repeated."""
    return _moved(images, [[1, 0, -2 * pixels / images.shape[-1]], [0, 1, 0]])


def scaled(images, factor):
    """`images` [count, channels, height, width] enlarged `factor` times around their middle."""
    check_above_zero("the factor", factor)
    return _moved(images, [[1 / factor, 0, 0], [0, 1 / factor, 0]])


def rotated(images, degrees):
    """Square `images` [count, channels, side, side] turned `degrees` against the clock."""
    if images.shape[-1] != images.shape[-2]:
        raise ValueError(f"images to be turned must be square, not {list(images.shape[-2:])}")
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return _moved(images, [[cos, -sin, 0], [sin, cos, 0]])


def _moved(images, matrix):
    """Bicubic samples at the places that `matrix` [2, 3] sends each place to."""
    if images.dim() != 4 or not images.is_floating_point():
        raise ValueError(
            "images must be floating point [count, channels, height, width], "
            f"not {images.dtype} {list(images.shape)}"
        )
    matrix = torch.tensor(matrix, dtype=images.dtype, device=images.device)
    places = affine_grid(matrix.expand(len(images), 2, 3), images.shape, align_corners=False)
    return grid_sample(images, places, "bicubic", "border", align_corners=False)


def _climb(response, image, value, size):
    """One step up from `image`: the next image, its response, and the next step's first size."""
    leaf = image.clone().requires_grad_()
    (slope,) = torch.autograd.grad(response(leaf).sum(), leaf)
    if not slope.any():
        return image, value, size
    with torch.no_grad():
        while size > SMALLEST_STEP:
            tried = _unit(image + size * _unit(slope))
            reached = response(tried).sum()
            if reached > value:
                return tried, reached, 2 * size
            size /= 2
    return image, value, 2 * size


def _unit(image):
    return image / image.norm()


def _check(responses, labels):
    check_samples("responses", responses)
    if labels.shape != responses.shape[:1]:
        raise ValueError(f"{len(responses)} frames need as many labels, not {list(labels.shape)}")
    if sorted(labels.unique().tolist()) != [0, 1]:
        raise ValueError(f"labels must be 0 and 1, both, not {labels.unique().tolist()}")
