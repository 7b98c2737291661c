"""Bytes are counted once on each link, in its direction; rings against the imagined cluster."""

import pytest
import torch

from course.cluster.fabric import (
    DGX_1,
    DGX_1V,
    adapter_each,
    coates_2013,
    dgx_1,
    dgx_large,
    dgx_small,
    dragonfly,
    fat_tree,
    k_ary_fat_tree,
    one_switch,
    pcie_tree,
    rails,
)
from course.cluster.hardware import EDR, FREE, NDR, NVLINK_H100
from course.cluster.loads import at_once_s, link_loads, ring_all_reduce_s
from course.cluster.mapping import contiguous, round_robin, shuffled
from course.collectives import all_reduce
from course.worlds import run, simulated


def ring(p, nbytes):
    return [(rank, (rank + 1) % p, nbytes) for rank in range(p)]


def test_a_cable_carries_a_ring_once_in_each_direction():
    """The notebook's bug adds both directions up, and finds every cable twice as full."""
    graph = one_switch(4, FREE, EDR)
    loads = link_loads(graph, ring(4, 100))
    assert loads == {link: 100 for n in range(4)
                     for link in ((f"gpu {n}", "switch"), ("switch", f"gpu {n}"))}  # fmt: skip
    assert at_once_s(graph, ring(4, 1e9)) == 2 * EDR.latency_s + 1e9 / EDR.bytes_per_s


def test_all_bytes_of_all_messages_are_on_the_links_of_their_routes():
    graph, messages = pcie_tree(2, 2, FREE), [(0, 1, 7), (0, 2, 10), (1, 3, 5), (2, 2, 9)]
    loads = link_loads(graph, messages)
    assert loads["gpu 0", "switch 0"] == 17
    assert loads["switch 0", "cpu"] == loads["cpu", "switch 1"] == 15
    assert ("cpu", "switch 0") not in loads
    assert sum(loads.values()) == 2 * 7 + 4 * 10 + 4 * 5


def test_a_placement_moves_the_load():
    graph = coates_2013(2)
    up = ("server 0", "switch")
    assert link_loads(graph, ring(8, 1), contiguous(graph, 8))[up] == 1
    assert link_loads(graph, ring(8, 1), round_robin(graph, 8))[up] == 4


def test_nothing_to_send_takes_no_time():
    graph = one_switch(2, FREE, EDR)
    assert at_once_s(graph, []) == 0
    assert at_once_s(graph, [(1, 1, 100)]) == 0
    assert ring_all_reduce_s(graph, ["gpu 1"], 100) == 0


@pytest.mark.parametrize("pair", [(0, 2), (2, 0), (-1, 0)])
def test_a_message_of_a_rank_without_a_device_is_refused(pair):
    with pytest.raises(ValueError, match=f"2 ranks have a device, .* {pair[0]} → {pair[1]}"):
        link_loads(one_switch(2, FREE, EDR), [(*pair, 8)])


CLUSTERS = {
    "pcie": pcie_tree(2, 4, FREE),
    "fat tree": fat_tree(4, 4, FREE, EDR, 2),
    "k-ary": k_ary_fat_tree(4, FREE, EDR),
    "adapters": adapter_each(3, 4, FREE, NVLINK_H100, NDR),
    "rails": rails(3, 4, FREE, NVLINK_H100, NDR, 1),
    "dragonfly": dragonfly(4, 2, 1, FREE, EDR, EDR),
    "DGX-1": dgx_1(DGX_1._replace(device=FREE)),
    "DGX-1V": dgx_1(DGX_1V._replace(device=FREE)),
    "small": dgx_small(7, DGX_1._replace(device=FREE)),
    "large": dgx_large(2, 2, 4, DGX_1._replace(device=FREE)),
}
PLACEMENTS = {"contiguous": contiguous, "round robin": round_robin,
              "shuffled": lambda graph, p: shuffled(graph, p, 1)}  # fmt: skip


def reduce_much(comm):
    all_reduce(comm, torch.empty(100_000 * comm.size, device=comm.device), segment_bytes=2**30)
    return comm.clock()


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_the_formula_of_a_ring_is_near_what_the_imagined_cluster_takes(name, placement):
    graph = CLUSTERS[name]
    p = min(16, sum(device is not None for _, device in graph.nodes(data="device")))
    placement = PLACEMENTS[placement](graph, p)
    world = simulated(graph, device="meta", placement=placement)
    seconds = max(run(reduce_much, p, on=world, checked=False))
    assert 0.8 < seconds / ring_all_reduce_s(graph, placement, 4e5 * p) < 1.2


@pytest.mark.parametrize("nbytes", [-1, float("nan")])
def test_bytes_that_cannot_be_are_refused(nbytes):
    with pytest.raises(
        ValueError, match=f"a message of 0 bytes or more goes 0 → 1, not of {nbytes}"
    ):
        at_once_s(one_switch(2, FREE, EDR), [(0, 1, nbytes)])


def test_a_rank_on_what_is_no_device_is_refused():
    graph = one_switch(2, FREE, EDR)
    for place in ("gpu 9", "switch"):
        with pytest.raises(ValueError, match=f"rank 1 is on '{place}', which is no device"):
            ring_all_reduce_s(graph, ["gpu 0", place], 8)
    with pytest.raises(ValueError, match="the number of ranks is a whole number, 1 or more, not 0"):
        ring_all_reduce_s(graph, [], 8)
