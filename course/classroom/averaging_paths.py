"""Paths of data-parallel training: gradients added or averaged, equal or unequal starts.

A rank runs all of them in one run; its images are given to it, training and validation.
"""

from torch.nn.utils import parameters_to_vector

from course.classroom.trainings import by_doubling
from course.learning.training.digits import SEEDS, backward, batches, digit_net, judge

BATCH = 64


def all_paths(comm, split, ways) -> dict:
    """For each of `ways` {name: (operation, rate, unequal starts)} and each seed, a `path`."""
    return {name: [path(comm, split, seed, *how) for seed in SEEDS] for name, how in ways.items()}


def path(comm, split, seed, op, rate, unequal, steps=20):
    """Validation losses of this rank's network by step, and how far its weights have moved, if
    gradients are reduced by `op`, and ranks begin alike or unequal."""
    net, found = digit_net(seed + 10 * comm.rank if unequal else seed).double(), []
    start = parameters_to_vector(net.parameters()).detach()
    for x, y in batches(split.training, BATCH, steps, seed, comm.rank, comm.size):
        backward(net, x, y)
        for weight in net.parameters():
            by_doubling(comm, weight.grad, op)
            weight.data -= rate * weight.grad
        found.append(judge(net, split.validation).loss)
    return found, parameters_to_vector(net.parameters()).detach() - start
