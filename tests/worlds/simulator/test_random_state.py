"""Every rank draws as if it had a process of its own."""

import random

import numpy
import torch

from course.worlds import processes, run
from tests.worlds.simulator.clusters import switched


def draw_in_turn(comm):
    """Draws with messages between them, so that other ranks draw in the meantime."""
    drawn = []
    for _ in range(3):
        drawn.append(
            (torch.rand(1).item(), torch.randperm(5).tolist(), torch.empty(2).normal_().tolist())
        )
        comm.barrier()
        drawn.append((random.random(), random.randrange(99), float(numpy.random.rand())))
        comm.barrier()
    return drawn


def seed_in_turn(comm):
    torch.manual_seed(7)
    comm.barrier()
    first = torch.rand(2).tolist()
    kept = torch.get_rng_state()
    comm.barrier()
    torch.rand(comm.rank + 1)
    random.seed(5), numpy.random.seed(6)
    comm.barrier()
    torch.set_rng_state(kept)
    comm.barrier()
    with torch.random.fork_rng():
        torch.manual_seed(comm.rank)
        comm.barrier()
        forked = torch.rand(1).item()
    comm.barrier()
    return (first, torch.rand(2).tolist(), forked, random.random(), numpy.random.rand(2).tolist(),
            torch.initial_seed())  # fmt: skip


def dropout(comm):
    layer = torch.nn.Dropout(0.5)
    kept = []
    for _ in range(3):
        kept.append(layer(torch.ones(20)).tolist())
        comm.barrier()
    return kept


def same_as_on_processes(fn, ranks=3):
    here = run(fn, ranks, on=switched(ranks))
    assert here == run(fn, ranks, on=processes())
    return here


def test_ranks_draw_what_they_would_draw_as_processes():
    here = same_as_on_processes(draw_in_turn)
    assert here[0] != here[1]


def test_seeding_is_a_rank_s_own():
    same_as_on_processes(seed_in_turn)


def test_dropout_is_too():
    same_as_on_processes(dropout)


def test_the_caller_draws_on_as_if_nothing_had_been():
    def seeded(between):
        torch.manual_seed(1), random.seed(2), numpy.random.seed(3)
        torch.rand(1), random.random(), numpy.random.rand()
        between()
        return torch.rand(2).tolist(), random.random(), numpy.random.rand()

    assert seeded(lambda: None) == seeded(lambda: run(draw_in_turn, 2, on=switched(2)))
