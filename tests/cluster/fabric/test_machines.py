"""The machines of the decks have the ports, cables, racks and watts that the decks say."""

import pytest
import torch

from course.cluster.fabric import (
    DGX_1,
    coates_2013,
    dgx_large,
    dgx_medium,
    dgx_small,
    ethernet_box,
)
from course.cluster.fabric.machines import add_trunk, ports_left
from course.cluster.hardware import EDR, ETHERNET_1G, FDR, FREE, GTX_680, PCIE_3
from course.cluster.inventory import bisection_bytes_per_s, inventory, oversubscription
from course.cluster.loads import ring_all_reduce_s
from course.cluster.mapping import contiguous, round_robin
from course.collectives import all_reduce
from course.worlds import run, simulated
from course.worlds.simulator.routes import Routes

FREE_DGX = DGX_1._replace(device=FREE)
SMALL, LARGE = dgx_small(), dgx_large()


def reduce_much(comm):
    all_reduce(comm, torch.empty(100_000 * comm.size, device=comm.device), segment_bytes=2**30)
    return comm.clock()


def ring_s(graph, placement):
    world = simulated(graph, device="meta", placement=placement)
    return max(run(reduce_much, len(placement), on=world, checked=False))


def test_coates_machine_has_64_gpus_on_16_adapters():
    graph = coates_2013()
    devices = Routes(graph).devices
    assert len(devices) == 64
    assert graph.degree("switch") == 16
    assert {graph.degree(f"server {n}") for n in range(16)} == {4 + 1}
    assert {graph.nodes[name]["device"] for name in devices} == {GTX_680}
    assert [graph.nodes[name]["server"] for name in devices] == [n // 4 for n in range(64)]
    assert bisection_bytes_per_s(graph) == pytest.approx(8 * FDR.bytes_per_s)
    assert bisection_bytes_per_s(coates_2013(1)) == pytest.approx(2 * PCIE_3.bytes_per_s)


def test_the_small_cluster_of_deck_n():
    told = inventory(SMALL)
    assert (told.servers, told.devices) == (12, 96)
    assert told.ports == {"switch 0": (36, 36), "switch 1": (36, 36)}
    assert SMALL.edges["switch 0", "switch 1"]["cables"] == 12
    assert oversubscription(SMALL, "switch 0") == 2
    assert told.rack_watts == {0: 19_200, 1: 19_200}
    assert told.cables == 2 * 24 + 12
    assert len(inventory(dgx_small(6)).ports) == 1


def test_the_medium_cluster_of_deck_n_is_a_pod_with_72_ports_left():
    told = inventory(dgx_medium())
    assert told.servers == 36
    assert told.ports == {"director 0": (144, 216)}
    assert set(told.rack_watts.values()) == {19_200} and len(told.rack_watts) == 6
    with pytest.raises(ValueError, match="no cable of director 0 leads up"):
        oversubscription(dgx_medium(2), "director 0")


def test_the_large_cluster_of_deck_n():
    told = inventory(LARGE)
    assert (told.servers, told.devices) == (144, 1152)
    assert told.ports["top"] == (288, 324)
    assert {told.ports[f"director {pod}"] for pod in range(4)} == {(216, 216)}
    assert {oversubscription(LARGE, f"director {pod}") for pod in range(4)} == {2}
    assert set(told.rack_watts.values()) == {19_200} and len(told.rack_watts) == 24
    assert bisection_bytes_per_s(dgx_large(2, 2, 4)) == pytest.approx(4 * EDR.bytes_per_s)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [(lambda: dgx_small(13), "a small cluster has 1 to 12 servers, not 13"),
     (lambda: dgx_small(0), "a small cluster has 1 to 12 servers, not 0"),
     (lambda: dgx_medium(55), "director 0 has 0 ports left, and 1 cables need one each"),
     (lambda: dgx_large(uplinks=73), "director 0 has 72 ports left, and 73 cables"),
     (lambda: dgx_large(pods=5), "top has 36 ports left, and 72 cables"),
     (lambda: dgx_medium(0), "the number of servers is a whole number, 1 or more, not 0")],
)  # fmt: skip
def test_more_cables_than_ports_are_refused(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


def test_a_trunk_takes_its_ports():
    graph = dgx_large(2, 1, 3)
    assert ports_left(graph, "top") == 324 - 6
    add_trunk(graph, "director 0", "director 1", 2)
    assert ports_left(graph, "director 0") == 216 - 4 - 3 - 2


# 2 cables of PCIe and 2 of InfiniBand at each end, and what is between the switches
EVEN = {"small": (dgx_small(8, FREE_DGX), (0, 48), 3),
        "medium": (dgx_medium(3, FREE_DGX), (0, 8, 16), 2),
        "large": (dgx_large(2, 2, 3, FREE_DGX), (0, 16), 4)}  # fmt: skip


@pytest.mark.parametrize("name", EVEN)
def test_a_ring_from_server_to_server_takes_what_the_formula_says(name):
    graph, numbers, fabric_cables = EVEN[name]
    placement, p = [f"gpu {n}" for n in numbers], len(numbers)
    alpha = 4 * PCIE_3.latency_s + fabric_cables * EDR.latency_s
    expected = 2 * (p - 1) * (alpha + 4e5 / EDR.bytes_per_s)
    assert ring_s(graph, placement) == pytest.approx(expected, rel=1e-9)
    assert ring_all_reduce_s(graph, placement, 4e5 * p) == pytest.approx(expected, rel=1e-9)


def test_rings_on_the_machines_of_coates_and_of_the_box():
    coates, box = coates_2013(3), ethernet_box(3, 2, FREE, PCIE_3, ETHERNET_1G)
    one_each = ["gpu 0", "gpu 4", "gpu 8"]
    free = simulated(coates, device="meta", placement=one_each, charge=lambda *_: 0.0)
    alpha = 2 * PCIE_3.latency_s + 2 * FDR.latency_s
    assert max(run(reduce_much, 3, on=free, checked=False)) == pytest.approx(
        4 * (alpha + 4e5 / FDR.bytes_per_s)
    )
    alpha = 2 * PCIE_3.latency_s + 2 * ETHERNET_1G.latency_s
    assert ring_s(box, ["rank 0", "rank 2", "rank 4"]) == pytest.approx(
        4 * (alpha + 4e5 / ETHERNET_1G.bytes_per_s)
    )


def test_a_ring_that_goes_through_every_server_once_beats_one_that_jumps():
    graph = coates_2013(4)
    assert ring_s(graph, round_robin(graph, 16)) > 3 * ring_s(graph, contiguous(graph, 16))


def test_a_job_across_pods_waits_for_the_uplinks():
    """Six servers in one pod, or three in each of two with every message crossing: 12 adapters
    are served by 6 uplinks, 2:1."""
    graph = dgx_large(2, 6, 6, FREE_DGX)
    inside = ring_s(graph, round_robin(graph, 48, range(6)))
    across = ring_s(graph, round_robin(graph, 48, [0, 6, 1, 7, 2, 8]))
    assert across == pytest.approx(2 * inside, rel=0.02)
