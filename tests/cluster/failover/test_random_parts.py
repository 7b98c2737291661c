"""Random numbers go on where they were; ranks that there were not draw others than all."""

import random

import numpy
import pytest
import torch

from course.cluster.failover import RandomNumbers
from course.cluster.failover.snapshot import Snapshot
from course.worlds import run


def drawn(generators):
    ours, theirs, its = generators
    return [torch.randn(2).tolist(), numpy.random.randn(2).tolist(), random.gauss(0, 1),
            torch.randn(2, generator=ours).tolist(), theirs.random(), its.random()]  # fmt: skip


def seeded(seed):
    torch.manual_seed(seed), numpy.random.seed(seed), random.seed(seed)
    return torch.Generator().manual_seed(seed), numpy.random.default_rng(seed), random.Random(seed)


@pytest.fixture
def saved():
    """What three ranks have saved, and what each draws next."""
    states, following = [], []
    for rank in range(3):
        generators = seeded(rank)
        drawn(generators)
        states.append(Snapshot().of(RandomNumbers(*generators).own()))
        following.append(drawn(generators))
    return states, following


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_rank_goes_on_with_its_own(saved, size):
    states, following = saved
    for rank in range(min(3, size)):
        generators = seeded(99)
        RandomNumbers(*generators).load(None, states, rank, size)
        assert drawn(generators) == following[rank]


def test_a_new_rank_draws_what_nobody_else_draws(saved):
    states, following = saved
    for rank in (3, 4, 5, 6):
        generators = seeded(99)
        RandomNumbers(*generators).load(None, states, rank, 7)
        following.append(drawn(generators))
        RandomNumbers(*generators).load(None, states, rank, 7)
        assert drawn(generators) == following[-1]  # the same in every start
    for draws in zip(*following):
        assert len(set(map(str, draws))) == len(draws)


def test_generators_of_a_new_rank_do_not_draw_the_same(saved):
    """Dropout's and the augmentation's, for example."""
    own = *(torch.Generator() for _ in range(2)), random.Random(), random.Random()
    part = RandomNumbers(*own)
    part.load(None, [part.own()], 1, 2)
    draws = [torch.rand(1).item(), *(torch.rand(1, generator=g).item() for g in own[:2])]
    draws += [random.random(), *(g.random() for g in own[2:])]
    assert len(set(draws)) == 6


def test_generators_are_of_known_kinds():
    with pytest.raises(ValueError, match="one of torch._C.Generator, numpy.random._generator.Gene"):
        RandomNumbers(numpy.random.RandomState(0))
    told = RandomNumbers(torch.Generator(), random.Random()).describe()
    assert told == ["torch, numpy, random, Generator, Random"]
    mine = numpy.random.default_rng(0), numpy.random.Generator(numpy.random.Philox(0))
    assert RandomNumbers(*mine).describe() == ["torch, numpy, random, PCG64, Philox"]


def test_ranks_begin_differently_and_stay_so():
    def program(comm):
        state = RandomNumbers().own()
        first = torch.randn(1).item()
        RandomNumbers().load(None, [state] * comm.size, comm.rank, comm.size)
        return first, torch.randn(1).item()

    results = run(program, 2)
    assert all(first == again for first, again in results) and results[0] != results[1]
