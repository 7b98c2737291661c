"""Training by gossip: programs for the scoreboard, and what a graph does to the workers' noise."""

import math

import torch

from course.classroom import many_workers, trainings
from course.learning.training.digits import backward
from course.parallel.flat_parameters import FlatParameters


def noise_factor(matrices, steps: int) -> float:
    """The variance of what tells workers apart after so many steps, in units of the noise that one
    step adds, if `matrices` [ranks, ranks] mix in turn.

    Of one matrix and many steps: the mean of 1 / (1 - eigenvalue²) over all patterns but the mean.
    """
    apart = fresh = torch.eye(len(matrices[0]), dtype=torch.float64) - 1 / len(matrices[0])
    for step in range(1, steps):
        mix = matrices[step % len(matrices)].double()
        apart = mix @ apart @ mix.T + fresh
    return float(apart.trace() / fresh.trace())


def told_losses(flat, faster):
    """Of workers [seeds, workers, elements] trained with two rates: cells of a table that tells
    what they have learned, the losses of the mean of all workers [seeds], and whether the median
    of the faster ones is better than a guess."""
    mean = many_workers.losses(flat.mean(dim=1))
    single = many_workers.losses(flat.flatten(0, 1))
    middle = many_workers.losses(faster.flatten(0, 1)).median()
    learned = bool(middle < math.log(10))
    line = (f"{mean.mean():.3f} ± {mean.std():.3f} {single.median():14.3f} {single.mean():6.3f}"
            f" {f'{middle:.1f}' if learned else 'diverges':>17}")  # fmt: skip
    return line, mean, learned


def decentralised(mix):
    """A program for the scoreboard: in every step mix(comm, weights, step), then a step with one's
    own gradient."""

    def train(comm, net, parts):
        weights = FlatParameters(net)
        for step, (x, y) in enumerate(parts):
            backward(net, x, y)
            mix(comm, weights.flat, step)
            weights.add_gradient(weights.flat, -trainings.RATE)
        return weights.flat

    return train
