"""Routes over a cluster: the shortest, never through a device, spread over equal ways."""

import networkx
import pytest

from course.cluster.fabric import coates_2013, fat_tree, one_switch, pcie_tree
from course.cluster.hardware import EDR, FDR, FREE, PCIE_3
from course.worlds.simulator.routes import Routes, add_cable, add_device


def names(route):
    return [link.name for link in route.links]


def test_a_message_crosses_two_cables_and_their_switch():
    routes = Routes(one_switch(3, FREE, EDR))
    route = routes.route("gpu 2", "gpu 0")
    assert names(route) == [("gpu 2", "switch"), ("switch", "gpu 0")]
    assert route.latency_s == 2 * EDR.latency_s and route.bottleneck.bytes_per_s == EDR.bytes_per_s


def test_the_two_directions_of_a_cable_are_links_of_their_own():
    routes = Routes(one_switch(2, FREE, EDR))
    there, back = routes.route("gpu 0", "gpu 1"), routes.route("gpu 1", "gpu 0")
    assert not set(there.links) & set(back.links)


def test_servers_are_left_by_the_adapter_alone():
    routes = Routes(coates_2013())
    assert names(routes.route("gpu 0", "gpu 1")) == [("gpu 0", "server 0"), ("server 0", "gpu 1")]
    far = routes.route("gpu 3", "gpu 60")
    assert [end for _, end in names(far)] == ["server 0", "switch", "server 15", "gpu 60"]
    assert far.bottleneck.bytes_per_s == FDR.bytes_per_s
    assert far.latency_s == 2 * (PCIE_3.latency_s + FDR.latency_s)


def test_devices_pass_nothing_on():
    graph = one_switch(2, FREE, EDR)
    graph.add_node("gpu 2", device=FREE)
    graph.add_edge("gpu 1", "gpu 2", latency_s=1e-6, bytes_per_s=1e9)
    with pytest.raises(ValueError, match="no links lead from gpu 0 to gpu 2"):
        Routes(graph).route("gpu 0", "gpu 2")
    assert len(Routes(graph).route("gpu 1", "gpu 2").links) == 1


def test_a_device_beside_the_way_is_no_way():
    """a - b is as short a beginning as a - s1, but b is a device."""
    graph = networkx.Graph([("a", "b"), ("b", "s2"), ("a", "s1"), ("s1", "s2"), ("s2", "c")])
    for _, _, cable in graph.edges(data=True):
        cable.update(latency_s=0, bytes_per_s=1)
    for name in "abc":
        graph.nodes[name]["device"] = FREE
    assert [end for _, end in names(Routes(graph).route("a", "c"))] == ["s1", "s2", "c"]


def test_equal_ways_are_spread_by_the_target():
    routes = Routes(fat_tree(4, 4, FREE, EDR))
    spines = [names(routes.route("gpu 0", f"gpu {n}"))[1][1] for n in range(4, 8)]
    assert sorted(spines) == [f"spine {n}" for n in range(4)]
    again = [names(routes.route("gpu 15", f"gpu {n}"))[1][1] for n in range(4, 8)]
    assert again == spines


def test_a_directed_graph_has_links_in_one_direction():
    graph = networkx.DiGraph()
    for name in "ab":
        graph.add_node(name, device=FREE)
    graph.add_edge("a", "b", latency_s=0, bytes_per_s=5)
    routes = Routes(graph)
    assert names(routes.route("a", "b")) == [("a", "b")]
    with pytest.raises(ValueError, match="no links lead from b to a"):
        routes.route("b", "a")


@pytest.mark.parametrize("cable", [{}, {"latency_s": -1, "bytes_per_s": 1},
                                   {"latency_s": 0, "bytes_per_s": 0}])  # fmt: skip
def test_a_cable_has_figures(cable):
    graph = networkx.Graph([("a", "b", cable)])
    with pytest.raises(ValueError, match="the link a → b needs latency_s ≥ 0 and bytes_per_s > 0"):
        Routes(graph)


@pytest.mark.parametrize("graph", [pcie_tree(2, 4, FREE), fat_tree(3, 4, FREE, EDR, 2)])
def test_all_routes_are_shortest_paths(graph):
    routes = Routes(graph)
    for src in routes.devices:
        for dst in routes.devices:
            length = networkx.shortest_path_length(graph, src, dst)
            assert len(routes.route(src, dst).links) == length


def test_a_graph_of_one_s_own_is_made_of_devices_and_cables():
    graph = networkx.Graph()
    for number in (1, 0):
        add_device(graph, f"rank {number}", FREE, server=number)
    add_cable(graph, "rank 0", "rank 1", PCIE_3)
    routes = Routes(graph)
    assert routes.devices == ["rank 1", "rank 0"] and graph.nodes["rank 0"]["server"] == 0
    (link,) = routes.route("rank 0", "rank 1").links
    assert (link.latency_s, link.bytes_per_s) == (PCIE_3.latency_s, PCIE_3.bytes_per_s)
