"""Placements put every rank on a device of its own."""

import networkx as nx
import pytest

from course.cluster.fabric import coates_2013
from course.cluster.hardware import EDR, FREE
from course.cluster.mapping import contiguous, round_robin, shuffled
from course.worlds import simulated
from course.worlds.simulator.routes import add_cable, add_device

GRAPH = coates_2013(3)


def numbers(placement):
    return [int(device.split()[1]) for device in placement]


def test_contiguous_fills_a_server_first():
    assert numbers(contiguous(GRAPH, 6)) == [0, 1, 2, 3, 4, 5]
    assert numbers(contiguous(GRAPH, 6, [2, 0])) == [8, 9, 10, 11, 0, 1]


def test_round_robin_lets_the_servers_take_turns():
    assert numbers(round_robin(GRAPH, 7)) == [0, 4, 8, 1, 5, 9, 2]
    assert numbers(round_robin(GRAPH, 4, [2, 1])) == [8, 4, 9, 5]


def test_round_robin_goes_on_where_a_server_is_smaller():
    graph = nx.Graph()
    for number, server in enumerate("abbb"):
        add_device(graph, number, FREE, server)
        add_cable(graph, number, "switch", EDR)
    assert round_robin(graph, 4) == [0, 1, 2, 3]
    assert round_robin(graph, 3, ["b", "a"]) == [1, 0, 2]


def test_shuffled_is_another_order_of_the_same_devices_for_every_seed():
    orders = [shuffled(GRAPH, 8, seed, [1, 2]) for seed in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == sorted(contiguous(GRAPH, 8, [1, 2])) for order in orders)
    assert shuffled(GRAPH, 8, 1, [1, 2]) == orders[1]


@pytest.mark.parametrize("place", [contiguous, round_robin, lambda *a: shuffled(*a[:2], 0, *a[2:])])
def test_what_cannot_be_placed_is_refused(place):
    with pytest.raises(ValueError, match="13 ranks need a device each, and the cluster has 12"):
        place(GRAPH, 13)
    with pytest.raises(ValueError, match=r"5 ranks need a device each, and servers \[1\] have 4"):
        place(GRAPH, 5, [1])
    with pytest.raises(ValueError, match=r"5 ranks .* servers \[1, 1\] have 4"):
        place(GRAPH, 5, [1, 1])
    with pytest.raises(ValueError, match="no server 3 among the 3"):
        place(GRAPH, 5, [3])
    with pytest.raises(ValueError, match="the number of ranks is a whole number, 1 or more, not 0"):
        place(GRAPH, 0)


def test_an_imagined_world_takes_them():
    assert simulated(GRAPH, placement=round_robin(GRAPH, 5)).nodes == [0, 1, 2, 0, 1]
