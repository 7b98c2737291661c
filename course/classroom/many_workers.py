"""Many workers of five seeds as rows of one tensor, to train them side by side in one process.

`starts` are their weights, `deals` the images of every step, `slopes` their gradients, `losses`
how good rows of weights are on images that nobody learns from.  The task is that of
`course/learning/training/digits.py`.
"""

import torch
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from course.learning.training.digits import SEEDS, WIDTHS, batches, digit_net, digit_split

INPUTS, HIDDEN, CLASSES = WIDTHS
PARTS = HIDDEN * INPUTS, HIDDEN, CLASSES * HIDDEN, CLASSES  # weights and biases of two layers


def starts(workers: int) -> torch.Tensor:
    """The weights [seeds, workers, elements] of the task's network: one start for each seed."""
    each = [parameters_to_vector(digit_net(seed).parameters()).detach() for seed in SEEDS]
    return torch.stack(each)[:, None].repeat(1, workers, 1)


def deals(workers: int, batch: int, steps: int) -> list:
    """For each step, images [seeds, workers, batch / workers, 64] and which digits they are."""
    training, rows = digit_split().training, []
    for seed in SEEDS:
        each = [batches(training, batch, steps, seed, rank, workers) for rank in range(workers)]
        rows.append([tuple(map(torch.stack, zip(*images))) for images in zip(*each)])
    return [tuple(map(torch.stack, zip(*of_seeds))) for of_seeds in zip(*rows)]


def loss_of(flat, x, y):
    """The mean cross-entropy of the network with weights `flat` [elements] on x [rows, 64]."""
    first, bias, second, last = flat.split(PARTS)
    hidden = (x @ first.view(HIDDEN, INPUTS).T + bias).relu()
    return cross_entropy(hidden @ second.view(CLASSES, HIDDEN).T + last, y)


def slopes(flat, x, y) -> torch.Tensor:
    """The gradient of each worker's own loss, shaped as `flat` [seeds, workers, elements]."""
    return vmap(vmap(grad(loss_of)))(flat, x, y)


def losses(flat) -> torch.Tensor:
    """The validation loss of each row of weights [rows, elements]."""
    return vmap(loss_of, in_dims=(0, None, None))(flat, *digit_split().validation)
