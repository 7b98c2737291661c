"""What is counted from a graph, on graphs that can be counted by hand."""

import networkx as nx
import pytest

from course.cluster.fabric import fat_tree, one_switch
from course.cluster.hardware import EDR, FREE, NDR
from course.cluster.inventory import bisection_bytes_per_s, inventory, oversubscription
from course.worlds.simulator.routes import add_cable, add_device


def two_servers():
    graph = nx.Graph()
    for number in range(4):
        add_device(graph, f"gpu {number}", FREE, number // 2)
        add_cable(graph, f"gpu {number}", "left" if number < 2 else "right", EDR)
    add_cable(graph, "left", "right", NDR)
    graph.nodes["left"]["ports"], graph.nodes["right"]["ports"] = 8, 3
    graph.edges["left", "right"]["cables"] = 4
    graph.nodes["gpu 0"].update(rack="a", watts=300)
    graph.nodes["gpu 1"].update(rack="a", watts=200)
    graph.nodes["gpu 2"].update(rack="b", watts=250)
    return graph


def test_a_cable_between_two_switches_is_one_and_takes_a_port_of_each():
    told = inventory(two_servers())
    assert told.cables == 4 + 4
    assert told.ports == {"left": (6, 8), "right": (6, 3)}


def test_power_is_added_up_by_rack():
    assert inventory(two_servers()).rack_watts == {"a": 500, "b": 250}


def test_what_a_graph_does_not_tell_is_not_counted():
    told = inventory(one_switch(3, FREE, EDR))
    assert told == (3, 3, {}, 0, {})


def test_what_leads_aside_counts_as_up():
    assert oversubscription(two_servers(), "left") == 2 * EDR.bytes_per_s / NDR.bytes_per_s
    tree = fat_tree(2, 6, FREE, EDR, 3)
    assert oversubscription(tree, "leaf 0") == 3
    with pytest.raises(ValueError, match="no cable of spine 0 leads up"):
        oversubscription(tree, "spine 0")


def test_the_middle_is_as_wide_as_its_cables_and_no_wider_than_the_devices():
    assert bisection_bytes_per_s(two_servers()) == 2 * EDR.bytes_per_s
    assert bisection_bytes_per_s(one_switch(5, FREE, EDR)) == 2 * EDR.bytes_per_s


def test_one_device_has_no_middle():
    with pytest.raises(ValueError, match="2 devices or more have a middle, not 1"):
        bisection_bytes_per_s(one_switch(1, FREE, EDR))


def test_what_no_device_reaches_is_not_below():
    graph = two_servers()
    add_cable(graph, "alone", "beside", EDR)
    assert oversubscription(graph, "left") == 2 * EDR.bytes_per_s / NDR.bytes_per_s
    for switch in ("alone", "no such switch"):
        with pytest.raises(ValueError, match=f"no device reaches {switch}"):
            oversubscription(graph, switch)
