"""Who is late, and who is which rank, changes no value: fifty seeds, every collective."""

import hashlib
import random

import pytest
import torch

from course.cluster.fabric import coates_2013
from course.collectives import all_reduce
from course.collectives.all_reduce import ALGORITHMS
from course.worlds import processes, run, simulated
from tests.collectives.drills import DRILLS, Material, wrongs
from tests.collectives.guarded import whole

SEEDS, RANKS = 50, 4
PLACES = 12  # of ranks on an imagined cluster
SHAPES = [(5,), (0,), (2, 3), (), (1,)]
NODES = {"shm": (0, 0, 0, 0), "sockets": (0, 1, 2, 3), "both": (0, 1, 0, 1)}


def late(draw):
    """Compute for a while, long enough for others to overtake."""
    x = torch.eye(60)
    for _ in range(draw.choice((0, 0, 1, 3, 10, 30))):
        x = x @ x


def in_random_order(comm, seed, material):
    """All drills once, the ranks renumbered, each of them late in its own way."""
    shared, own, found = random.Random(seed), random.Random(f"{seed} {comm.rank}"), []
    keys = shared.sample(range(comm.size), comm.size)
    group = comm.split("all", keys[comm.rank])
    for drill in shared.sample(DRILLS, len(DRILLS)):
        late(own)
        found += wrongs(group, drill, material, SHAPES, root=seed)
    return found, group.members


def in_many_orders(comm, seeds):
    """What went wrong in any of them, and how many orders of the ranks there were."""
    found, orders = [], set()
    for seed in range(seeds):
        wrong, members = in_random_order(comm, seed, Material(torch.float64, whole, seed))
        found += wrong
        orders.add(members)
    return found, len(orders)


@pytest.mark.parametrize("nodes, checked", [("shm", True), ("sockets", False), ("both", False)])
def test_delays_and_orders_of_processes_change_no_value(nodes, checked):
    on = processes(nodes=NODES[nodes])
    results = run(in_many_orders, RANKS, SEEDS, on=on, checked=checked)
    assert [found for found, _ in results] == [[]] * RANKS
    assert {orders for _, orders in results} == {21}  # of 24; the seeds are what they are


def in_this_order(comm, seed):
    """The same on an imagined cluster, and when it was over."""
    return in_random_order(comm, seed, Material(torch.float64, whole, seed))[0], comm.clock()


def test_delays_and_places_in_an_imagined_cluster_change_no_value():
    """Five of 64 GPUs, wherever they are: one is slow, and all are late by chance."""
    ends, everywhere = set(), simulated(coates_2013())
    for seed in range(PLACES):
        draw = random.Random(seed)
        places, slow = draw.sample(everywhere.placement, 5), {seed % 5: draw.uniform(1, 20)}
        on = simulated(coates_2013(), placement=places, slow=slow, jitter=0.5, seed=seed)
        results = run(in_this_order, 5, seed, on=on, checked=seed % 2 == 0)
        assert [found for found, _ in results] == [[]] * 5
        ends.add(max(end for _, end in results))
    assert len(ends) == PLACES  # no two of them took the same time


class LateSum:
    """A sum that takes a while."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def __call__(self, mine, theirs):
        late(self.draw)
        return mine + theirs


def rounded_sums(comm, seeds):
    """The bits of sums that depend on the order of adding, by algorithm: all that occurred."""
    generator = torch.Generator().manual_seed(comm.rank)
    mine = torch.randn(501, generator=generator)
    seen = {algorithm: set() for algorithm in ALGORITHMS}
    for seed in range(seeds):
        late_sum = LateSum(f"{seed} {comm.rank}")
        for algorithm, bits in seen.items():
            x = mine.clone()
            late(late_sum.draw)
            all_reduce(comm, x, late_sum, algorithm=algorithm, segment_bytes=160)
            bits.add(hashlib.sha256(x.numpy().tobytes()).hexdigest())
    return seen


def test_a_sum_is_rounded_the_same_way_however_late_its_ranks_are():
    """Were a partial sum made of what comes first, its last bits would change from run to run."""
    worlds = [processes(nodes=nodes) for nodes in NODES.values()]
    worlds += [simulated(coates_2013(), slow={1: 5.0}, jitter=0.5, seed=3)]
    for world in worlds:
        seen = run(rounded_sums, RANKS, 5, on=world, checked=False)
        assert seen == [seen[0]] * RANKS
        assert all(len(bits) == 1 for bits in seen[0].values())
