"""Training by gossip: programs for the scoreboard, and what a graph does to the workers' noise."""

import math

import torch

from course.classroom import many_workers, trainings
from course.learning.training.digits import backward
from course.parallel.flat_parameters import FlatParameters


def noise_factor(matrix) -> float:
    """The mean of 1 / (1 - eigenvalue²) over all patterns but the mean of all ranks."""
    others = torch.linalg.eigvalsh(matrix)[:-1]  # the last, 1, belongs to the mean
    return float((1 / (1 - others.square())).mean())


def told_graph(name, matrix, flat, faster):
    """Of workers [seeds, workers, elements] trained on a graph, with two rates: a line that tells
    what they have learned, and the losses of the mean of all workers [seeds]."""
    gap = 1 - torch.linalg.eigvalsh(matrix)[:-1].abs().max()
    mean = many_workers.losses(flat.mean(dim=1))
    single = many_workers.losses(flat.flatten(0, 1)).mean()
    too_fast = many_workers.losses(faster.mean(dim=1)).mean() > math.log(10)
    line = (f"{name:13} gap {gap:.3f}, noise x {noise_factor(matrix):5.2f}; "
            f"mean of all {mean.mean():.3f} ± {mean.std():.3f}, single {single:.3f}; "
            f"at rate 1 {'worse than guessing' if too_fast else 'it learns'}")  # fmt: skip
    return line, mean


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
