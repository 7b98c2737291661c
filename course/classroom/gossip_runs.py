"""Runs of gossip: what ranks hold round by round, and who is late."""

import torch

from course.parallel.gossip import gossip
from course.parallel.gossip.topology import metropolis, steps_to_agree


def watched(comm, start, one_round, rounds):
    """What this rank holds at the start and after each of so many rounds [rounds + 1, ...], if
    one_round(comm, x, step) changes its x, a row of `start`, in place."""
    held = [start[comm.rank].clone()]
    for step in range(rounds):
        held.append(held[-1].clone())
        one_round(comm, held[-1], step)
    return torch.stack(held)


def by_matrix(matrix):
    """A round for `watched`: each rank mixes by its row of the matrix."""

    def one_round(comm, x, step):
        gossip(comm, x, matrix, 1)

    return one_round


def rounds_of(graph) -> int:
    """Rounds until a thousandth of the disagreement is left on `graph`, with Metropolis weights."""
    return steps_to_agree(metropolis(graph), 1e-3)


def work_and(average, *how):
    """A program for ranks: multiply two matrices, then average, and look at the clock (ms)."""

    def work(comm):
        weights = torch.ones(1000, 1000, device=comm.device)
        average(comm, (weights @ weights)[0].clone(), *how)
        return 1e3 * comm.clock()

    return work
