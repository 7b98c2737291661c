"""The ready clusters: their counts, what crosses them, and what that does to a run."""

import networkx
import pytest
import torch

from course.cluster.fabric import adapter_each, coates_2013, fat_tree, one_switch, pcie_tree
from course.cluster.hardware import EDR, FDR, FREE, GTX_680, NDR, NVLINK_H100, PCIE_3
from course.collectives import all_reduce
from course.worlds import run, simulated


def devices(graph):
    return [node for node, device in graph.nodes(data="device") if device]


def bisection(graph, half):
    """Bytes a second from the first `half` devices to the others."""
    flow = networkx.Graph(graph)
    inside, outside = devices(graph)[:half], devices(graph)[half:]
    flow.add_edges_from(("in", node) for node in inside)
    flow.add_edges_from((node, "out") for node in outside)
    return networkx.maximum_flow_value(flow, "in", "out", capacity="bytes_per_s")


def test_devices_are_in_the_order_of_ranks():
    for graph in (one_switch(12, FREE, EDR), pcie_tree(3, 4, FREE), fat_tree(3, 4, FREE, EDR),
                  coates_2013(3), adapter_each(3, 4, FREE, NVLINK_H100, NDR)):  # fmt: skip
        assert devices(graph) == [f"gpu {n}" for n in range(12)]
        assert networkx.is_connected(graph)


def test_coates_machine_has_64_gpus_on_16_adapters():
    graph = coates_2013()
    assert len(devices(graph)) == 64
    assert graph.degree("infiniband") == 16
    assert {graph.degree(f"server {n}") for n in range(16)} == {4 + 1}
    assert {graph.nodes[name]["device"] for name in devices(graph)} == {GTX_680}
    servers = [graph.nodes[name]["server"] for name in devices(graph)]
    assert servers == [n // 4 for n in range(64)]
    assert bisection(graph, 32) == pytest.approx(8 * FDR.bytes_per_s)
    assert bisection(coates_2013(1), 2) == pytest.approx(2 * PCIE_3.bytes_per_s)


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_oversubscription_divides_the_bisection(oversubscription):
    graph = fat_tree(4, 8, FREE, EDR, oversubscription)
    assert len(devices(graph)) == 32
    hosts, spines = 32, 8 / oversubscription
    assert sum(str(node).startswith("spine") for node in graph) == spines
    full = hosts / 2 * EDR.bytes_per_s
    assert bisection(graph, 16) == pytest.approx(full / oversubscription)


def test_the_switches_of_a_pcie_tree_share_their_cables_to_the_cpu():
    graph = pcie_tree(2, 4, FREE)
    assert bisection(graph, 4) == PCIE_3.bytes_per_s
    assert graph.degree("cpu") == 2


def test_a_tree_of_half_a_switch_is_refused():
    with pytest.raises(ValueError, match="8 cables down and an oversubscription of 3 make 2.66667"):
        fat_tree(2, 8, FREE, EDR, 3)
    with pytest.raises(ValueError, match="0.5 cables up"):
        fat_tree(2, 1, FREE, EDR, 2)


def across(comm, nbytes):
    """Every rank of the first half sends to one of the second."""
    half, x = comm.size // 2, torch.empty(nbytes, dtype=torch.uint8, device=comm.device)
    comm.send(x, comm.rank + half) if comm.rank < half else comm.recv(x, comm.rank - half)
    return comm.clock()


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_crossing_the_middle_takes_as_much_longer(oversubscription):
    graph, nbytes = fat_tree(2, 8, FREE, EDR, oversubscription), 10**9
    seconds = max(run(across, 16, nbytes, on=simulated(graph, device="meta"), timeout=None))
    latency_s = 4 * EDR.latency_s
    assert seconds - latency_s == pytest.approx(oversubscription * nbytes / EDR.bytes_per_s)


def reduce_much(comm):
    all_reduce(comm, torch.empty(16_000_000, device=comm.device), segment_bytes=2**30)
    return comm.clock()


def test_a_ring_that_goes_through_every_server_once_beats_one_that_jumps():
    graph, ranks = coates_2013(4), 16
    by_server = simulated(graph, device="meta")
    jumping = simulated(graph, device="meta",
                        placement=[f"gpu {n % 4 * 4 + n // 4}" for n in range(ranks)])  # fmt: skip
    near, far = (
        max(run(reduce_much, ranks, on=world, checked=False)) for world in (by_server, jumping)
    )
    assert far > 3 * near


@pytest.mark.parametrize(("dst", "cable", "cables"), [(1, NVLINK_H100, 2), (5, NDR, 4)])
def test_a_message_goes_through_its_own_server_or_through_its_own_adapter(dst, cable, cables):
    def one_message(comm):
        x = torch.empty(10**8, dtype=torch.uint8, device=comm.device)
        if comm.rank == 0:
            comm.send(x, dst)
        elif comm.rank == dst:
            comm.recv(x, 0)
        return comm.clock()

    graph = adapter_each(2, 4, FREE, NVLINK_H100, NDR)
    seconds = max(run(one_message, 8, on=simulated(graph, device="meta")))
    assert seconds == pytest.approx(cables * cable.latency_s + 10**8 / cable.bytes_per_s)
    assert bisection(graph, 4) == pytest.approx(4 * NDR.bytes_per_s)
