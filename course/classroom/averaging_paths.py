"""Paths of data-parallel training: gradients added or averaged, equal or unequal starts.

A rank runs all of them in one run; its images are given to it, training and validation.
"""

import torch

from course.classroom.trainings import by_doubling
from course.learning.training.digits import SEEDS, backward, batches, digit_net, judge
from course.parallel.flat_parameters import FlatParameters

BATCH = 64


def all_paths(comm, split, ways) -> dict:
    """For each of `ways` {name: (operation, rate, unequal starts)} and each seed, a `path`."""
    return {name: [path(comm, split, seed, *how) for seed in SEEDS] for name, how in ways.items()}


def path(comm, split, seed, op, rate, unequal, steps=20):
    """Validation losses of this rank's network by step, and how far its weights have moved, if
    gradients are reduced by `op`, and ranks begin alike or unequal."""
    net, found = digit_net(seed + 10 * comm.rank if unequal else seed).double(), []
    weights = FlatParameters(net).flat
    start = weights.clone()
    for x, y in batches(split.training, BATCH, steps, seed, comm.rank, comm.size):
        backward(net, x, y)
        gradient = torch.cat([weight.grad.flatten() for weight in net.parameters()])
        by_doubling(comm, gradient, op)
        weights -= rate * gradient
        found.append(judge(net, split.validation).loss)
    return found, weights - start
