"""Networks: their counts, what crosses them, and what that does to a run."""

import itertools

import networkx
import pytest
import torch

from course.cluster.fabric import (
    adapter_each,
    dragonfly,
    fat_tree,
    k_ary_fat_tree,
    one_switch,
    pcie_tree,
    rails,
)
from course.cluster.hardware import EDR, FREE, NDR, NVLINK_H100
from course.cluster.inventory import bisection_bytes_per_s, oversubscription
from course.cluster.loads import at_once_s, ring_all_reduce_s
from course.collectives import all_reduce
from course.worlds import RankError, run, simulated
from course.worlds.simulator.routes import Routes

TWELVE = {
    "one switch": one_switch(12, FREE, EDR),
    "fat tree": fat_tree(3, 4, FREE, EDR),
    "adapter each": adapter_each(3, 4, FREE, NVLINK_H100, NDR),
    "rails": rails(3, 4, FREE, NVLINK_H100, NDR, spines=2),
    "dragonfly": dragonfly(3, 1, 1, FREE, EDR, EDR),
}


@pytest.mark.parametrize("name", TWELVE)
def test_devices_are_in_the_order_of_ranks(name):
    graph = TWELVE[name]
    assert Routes(graph).devices == [f"gpu {n}" for n in range(12)]
    assert networkx.is_connected(graph)


@pytest.mark.parametrize("oversubscription_", [1, 2, 4])
def test_oversubscription_divides_the_bisection(oversubscription_):
    graph = fat_tree(4, 8, FREE, EDR, oversubscription_)
    assert sum(str(node).startswith("spine") for node in graph) == 8 / oversubscription_
    assert oversubscription(graph, "leaf 3") == oversubscription_
    full = 32 / 2 * EDR.bytes_per_s
    assert bisection_bytes_per_s(graph) == pytest.approx(full / oversubscription_)


def test_a_tree_of_half_a_switch_is_refused():
    with pytest.raises(ValueError, match="8 cables down and an oversubscription of 3 make 2.66667"):
        fat_tree(2, 8, FREE, EDR, 3)
    with pytest.raises(ValueError, match="0.5 cables up"):
        fat_tree(2, 1, FREE, EDR, 2)


def test_leaves_and_spines_of_36_ports_hold_648_hosts():
    graph = fat_tree(36, 18, FREE, EDR)
    assert len(Routes(graph).devices) == 36**2 / 2
    assert {graph.degree(node) for node in graph if "device" not in graph.nodes[node]} == {36}


@pytest.mark.parametrize("k", [2, 4, 6])
def test_a_fat_tree_of_k_ports(k):
    graph = k_ary_fat_tree(k, FREE, EDR)
    switches = [node for node in graph if "device" not in graph.nodes[node]]
    assert len(Routes(graph).devices) == k**3 / 4
    assert len(switches) == 5 * k**2 / 4
    assert {graph.degree(switch) for switch in switches} == {k}
    assert bisection_bytes_per_s(graph) == pytest.approx(k**3 / 8 * EDR.bytes_per_s)
    assert networkx.diameter(graph) == 6


def test_a_fat_tree_of_odd_switches_is_refused():
    with pytest.raises(ValueError, match="of 2, 4, 6, ... ports, not of 5"):
        k_ary_fat_tree(5, FREE, EDR)


@pytest.mark.parametrize("make, nothing", [
    (lambda: one_switch(0, FREE, EDR), "devices"),
    (lambda: fat_tree(0, 4, FREE, EDR), "leaves"),
    (lambda: adapter_each(0, 4, FREE, EDR, EDR), "servers"),
    (lambda: rails(2, 0, FREE, EDR, EDR), "devices in a server"),
    (lambda: dragonfly(0, 2, 1, FREE, EDR, EDR), "routers in a group"),
    (lambda: dragonfly(2, 0, 1, FREE, EDR, EDR), "devices on a router"),
    (lambda: pcie_tree(0, 4, FREE), "switches"),
    (lambda: pcie_tree(2, 0, FREE), "devices on a switch"),
])  # fmt: skip
def test_a_network_of_nothing_is_refused(make, nothing):
    with pytest.raises(ValueError, match=f"the number of {nothing} is a whole number, 1"):
        make()


def test_fewer_than_no_cables_are_refused():
    with pytest.raises(ValueError, match="the number of spines must be 0 or more, not -1"):
        rails(2, 2, FREE, EDR, EDR, spines=-1)
    with pytest.raises(ValueError, match="the number of far cables must be 0 or more, not -1"):
        dragonfly(2, 2, -1, FREE, EDR, EDR)


@pytest.mark.parametrize("oversubscription_", [0, -1, float("nan"), 3])
def test_so_many_cables_up_cannot_be(oversubscription_):
    with pytest.raises(ValueError, match="cables up, which is no whole number of switches"):
        fat_tree(2, 4, FREE, EDR, oversubscription_)


@pytest.mark.parametrize("k", [4, 6])
def test_no_cable_of_a_fat_tree_is_shared_by_all_that_cross_its_middle(k):
    """Each device sends to one of the other half: every core switch is needed."""
    graph = k_ary_fat_tree(k, FREE, EDR)
    n = k**3 // 4
    shift = [(source, (source + n // 2) % n, 1e9) for source in range(n)]
    assert at_once_s(graph, shift) == pytest.approx(at_once_s(graph, shift[:1]), rel=1e-9)


@pytest.mark.parametrize(("routers", "far_cables"), [(2, 1), (4, 2), (3, 3)])
def test_any_two_groups_of_a_dragonfly_have_one_cable(routers, far_cables):
    graph = dragonfly(routers, 2, far_cables, FREE, EDR, NDR)
    groups = routers * far_cables + 1
    assert len(Routes(graph).devices) == groups * routers * 2
    names = [node for node in graph if str(node).startswith("router")]
    assert {graph.degree(name) for name in names} == {2 + routers - 1 + far_cables}
    routed = graph.subgraph(names).edges(data="bytes_per_s")
    far = [sorted(int(name.split()[1]) // routers for name in ends)
           for *ends, rate in routed if rate == NDR.bytes_per_s]  # fmt: skip
    assert sorted(far) == [list(pair) for pair in itertools.combinations(range(groups), 2)]
    assert networkx.diameter(graph) <= 5


def reduce_much(comm):
    x = torch.empty(100_000 * comm.size, device=comm.device)
    all_reduce(comm, x, segment_bytes=2**30)
    return comm.clock()


# Equal ways from every rank to the next: there the formula is exact.
EVEN = {
    "one switch": (one_switch(5, FREE, EDR), range(5)),
    "fat tree": (fat_tree(4, 4, FREE, EDR, 2), (0, 4, 8, 12)),
    "k-ary fat tree": (k_ary_fat_tree(4, FREE, EDR), (0, 4, 8, 12)),
    "adapter each": (adapter_each(3, 4, FREE, NVLINK_H100, NDR), (1, 5, 9)),
    "rails": (rails(3, 4, FREE, NVLINK_H100, NDR), (1, 5, 9)),
    "rails with spines": (rails(3, 4, FREE, NVLINK_H100, NDR, spines=1), (0, 5, 10)),
    "dragonfly": (dragonfly(4, 2, 1, FREE, EDR, EDR), (0, 39)),
}
CABLES = {"one switch": 2, "fat tree": 4, "k-ary fat tree": 6, "adapter each": 4, "rails": 4,
          "rails with spines": 6, "dragonfly": 5}  # fmt: skip


@pytest.mark.parametrize("name", EVEN)
def test_a_ring_takes_what_the_formula_says(name):
    graph, numbers = EVEN[name]
    placement, p = [f"gpu {n}" for n in numbers], len(numbers)
    world = simulated(graph, device="meta", placement=placement)
    seconds = max(run(reduce_much, p, on=world, checked=False))
    cable = NDR if name in ("adapter each", "rails", "rails with spines") else EDR
    alpha, beta = CABLES[name] * cable.latency_s, 1 / cable.bytes_per_s
    assert seconds == pytest.approx(2 * (p - 1) * (alpha + 400_000 * beta), rel=1e-9)
    assert ring_all_reduce_s(graph, placement, 400_000 * p) == pytest.approx(seconds, rel=1e-9)


def one_message(comm, dst):
    x = torch.empty(10**8, dtype=torch.uint8, device=comm.device)
    if comm.rank == 0:
        comm.send(x, dst)
    elif comm.rank == dst:
        comm.recv(x, 0)
    return comm.clock()


@pytest.mark.parametrize(("dst", "cable", "cables"), [(1, NVLINK_H100, 2), (5, NDR, 4)])
def test_a_message_goes_through_its_own_server_or_through_its_own_adapter(dst, cable, cables):
    graph = adapter_each(2, 4, FREE, NVLINK_H100, NDR)
    seconds = max(run(one_message, 8, dst, on=simulated(graph, device="meta")))
    assert seconds == pytest.approx(cables * cable.latency_s + 10**8 / cable.bytes_per_s)
    assert bisection_bytes_per_s(graph) == pytest.approx(4 * NDR.bytes_per_s)


def test_without_spines_no_route_leads_from_rail_to_rail():
    apart = rails(2, 4, FREE, NVLINK_H100, NDR)
    with pytest.raises((ValueError, RankError), match="no links lead from gpu 0 to gpu 5"):
        run(one_message, 8, 5, on=simulated(apart, device="meta"))
    joined = rails(2, 4, FREE, NVLINK_H100, NDR, spines=1)
    seconds = max(run(one_message, 8, 5, on=simulated(joined, device="meta")))
    assert seconds == pytest.approx(6 * NDR.latency_s + 10**8 / NDR.bytes_per_s)


def across(comm, nbytes):
    """Every rank of the first half sends to one of the second."""
    half, x = comm.size // 2, torch.empty(nbytes, dtype=torch.uint8, device=comm.device)
    comm.send(x, comm.rank + half) if comm.rank < half else comm.recv(x, comm.rank - half)
    return comm.clock()


@pytest.mark.parametrize("oversubscription_", [1, 2, 4])
def test_crossing_the_middle_takes_as_much_longer(oversubscription_):
    graph, nbytes = fat_tree(2, 8, FREE, EDR, oversubscription_), 10**9
    seconds = max(run(across, 16, nbytes, on=simulated(graph, device="meta"), timeout=None))
    latency_s = 4 * EDR.latency_s
    assert seconds - latency_s == pytest.approx(oversubscription_ * nbytes / EDR.bytes_per_s)
