"""The best of all placements, where they are few."""

import itertools

import pytest
import torch

from course.cluster.hardware import FDR, NVLINK_P100
from course.cluster.placement import by_brute_force, heft, schedule, traced
from course.cluster.placement.costs import Costs
from course.cluster.placement.schedule import scheduled
from tests.cluster.placement.machines import pair, short_of_memory, unequal
from tests.cluster.placement.nets import Random, small


@pytest.mark.parametrize("machine", [pair(NVLINK_P100), unequal()], ids=["alike", "unequal"])
def test_no_placement_is_shorter(machine):
    graph = traced(Random(2, 4, 400), torch.ones(300, 400))
    costs, found = Costs(graph, machine), []
    for devices in itertools.product(("gpu 0", "gpu 1"), repeat=len(graph.operations)):
        placement = dict(zip(graph.operations, devices))
        if all(len({placement[name] for name in group}) == 1 for group in graph.groups()):
            found.append(scheduled(costs, placement).seconds)
    assert len(found) == 2 ** len(graph.groups()) > 30
    best = schedule(graph, by_brute_force(graph, machine), machine).seconds
    assert best == min(found) < max(found)
    assert schedule(graph, heft(graph, machine), machine).seconds >= best


def test_what_does_not_fit_is_not_chosen():
    module, x = small("branches")
    graph = traced(module, x)
    weights = sum(sum(each.weights.values()) for each in graph.operations.values())
    alone = by_brute_force(graph, short_of_memory(weights, cable=FDR))
    assert {*alone.values()} == {"gpu 0"}
    parted = by_brute_force(graph, short_of_memory(0.7 * weights, cable=FDR))
    assert {*parted.values()} == {"gpu 0", "gpu 1"}
    with pytest.raises(ValueError, match="none of 256 placements fits the memories"):
        by_brute_force(graph, short_of_memory(0.4 * weights))


def test_too_many_are_refused_before_the_first():
    module, x = small("ladder")
    with pytest.raises(ValueError, match="on 3 devices have 531441 placements, more than 20000"):
        by_brute_force(traced(module, x), pair(count=3))
    with pytest.raises(ValueError, match="placements, more than 10"):
        by_brute_force(traced(module, x), pair(), most=10)
    graph = traced(
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)), torch.ones(1, 3)
    )
    assert [*by_brute_force(graph, pair(), most=4)] == [*graph.operations]
    with pytest.raises(ValueError, match="have 4 placements, more than 3"):
        by_brute_force(graph, pair(), most=3)
