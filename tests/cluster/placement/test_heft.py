"""HEFT as published; where it is better than by hand, and where it is worse than one device."""

import itertools

import networkx as nx
import pytest
import torch
from torch import nn

from course.cluster.hardware import FDR, NVLINK_P100, Cable
from course.cluster.placement import by_brute_force, heft, placed_by_hand, schedule, traced
from course.cluster.placement.costs import Costs
from course.cluster.placement.graph import Graph, Operation, Room
from course.cluster.placement.networks import Inception, vgg
from course.worlds.simulator.routes import add_cable, add_device
from tests.cluster.placement.machines import FAST, pair, short_of_memory, unequal

# The example of Topcuoglu, Hariri & Wu 2002, figure 3: computation costs of ten tasks on three
# processors, and communication costs.
WORK = ((14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10), (13, 16, 9),
        (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16))  # fmt: skip
EDGES = {(1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16,
         (3, 7): 23, (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11,
         (9, 10): 13}  # fmt: skip
RANKS = (108, 77, 80, 80, 69, 190 / 3, 128 / 3, 107 / 3, 133 / 3, 44 / 3)
WHERE = "CACBCBCABB"


def operation(name, takes, nbytes, group):
    room = Room(torch.Size([nbytes]), torch.uint8)
    return Operation(name, (), (), takes, {group: 0}, room)


@pytest.fixture
def published(monkeypatch):
    """The graph and the machine; an edge is an operation that takes no time beside its task."""
    found = {}
    for task in range(1, 11):
        takes = tuple(f"{a} {b}" for a, b in EDGES if b == task)
        found[str(task)] = operation(str(task), takes, 0, task)
        for (a, b), nbytes in EDGES.items():
            if a == task:
                found[f"{a} {b}"] = operation(f"{a} {b}", (str(a),), nbytes, a)
    machine = nx.Graph()
    for device in "ABC":
        add_device(machine, device, FAST, 0)
    for two in itertools.combinations("ABC", 2):
        add_cable(machine, *two, Cable("one byte a second", 0, 1, "the example"))
    monkeypatch.setattr(Costs, "seconds", lambda self, name, device: (
        WORK[int(name) - 1]["ABC".index(device)] if name.isdigit() else 0))  # fmt: skip
    return Graph(None, found, {}, None), machine


def test_the_published_example_has_its_ranks_and_its_placement(published):
    ranks = Costs(*published).upward_ranks
    assert [ranks[str(task)] for task in range(1, 11)] == pytest.approx(RANKS)
    placement = heft(*published)
    assert "".join(placement[str(task)] for task in range(1, 11)) == WHERE


@pytest.fixture(scope="module")
def inception():
    """A block of GoogLeNet for 32 pictures."""
    return traced(Inception().to("meta"), torch.empty(32, 192, 28, 28, device="meta"))


def lengths(graph, machine, heads):
    """Seconds by hand, by HEFT, of the best placement, and on one device."""
    one = dict.fromkeys(graph.operations, "gpu 0")
    placements = (
        placed_by_hand(graph, heads),
        heft(graph, machine),
        by_brute_force(graph, machine),
        one,
    )
    return [schedule(graph, placement, machine).seconds for placement in placements]


HALF = {"one_0": "gpu 0", "three_0_0": "gpu 0", "five_0_0": "gpu 1", "pooled_0": "gpu 1"}


def test_where_links_are_fast_the_heuristic_is_the_best_and_better_than_two_branches_each(
    inception,
):
    hand, heuristic, best, one = lengths(inception, pair(NVLINK_P100), HALF)
    assert heuristic == best < hand < one


def test_where_they_are_slow_it_is_worse_than_one_device_and_there_is_a_better_one(inception):
    hand, heuristic, best, one = lengths(inception, pair(FDR), HALF)
    assert best < one < 0.6 * heuristic


def test_a_chain_stays_on_the_fastest_device():
    chain = traced(vgg().to("meta"), torch.empty(8, 3, 224, 224, device="meta"))
    assert {*heft(chain, unequal()).values()} == {"gpu 1"}


def test_full_memories_part_a_chain_and_the_heuristic_sees_too_late_where_the_border_is_narrow():
    sizes = (1000, 10, 5000, 10)  # 40 KB, 200 KB and 200 KB of weights
    net = nn.Sequential(*(nn.Linear(*two, bias=False) for two in itertools.pairwise(sizes)))
    graph, machine = traced(net, torch.ones(1000, 1000)), short_of_memory(400_000)
    filled, best = heft(graph, machine), by_brute_force(graph, machine)
    assert filled == {"_0": "gpu 0", "_1": "gpu 0", "_2": "gpu 1"}
    assert best == {"_0": "gpu 0", "_1": "gpu 1", "_2": "gpu 1"}
    shortest, found = (schedule(graph, each, machine).seconds for each in (best, filled))
    assert found > 3 * shortest


def test_weights_that_fit_nowhere_are_refused():
    graph = traced(nn.Sequential(nn.Linear(10, 10, bias=False)), torch.ones(1, 10))
    with pytest.raises(ValueError, match="400 bytes of weights of _0 fit on none of 2 devices"):
        heft(graph, short_of_memory(399))


class Fork(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.first, self.second = nn.Linear(3000, 3000), nn.Linear(3000, 3000)
        if tied:
            self.second.weight = self.first.weight

    def forward(self, x):
        return self.first(x) + self.second(x)


@pytest.mark.parametrize("tied", [False, True])
def test_operations_that_share_a_weight_follow_the_first(tied):
    with torch.device("meta"):
        graph = traced(Fork(tied), torch.empty(10_000, 3000))
    placement = heft(graph, pair(NVLINK_P100))
    assert (placement["first"] == placement["second"]) == tied
