"""Seconds of operations, transfers and upward ranks, worked out by hand."""

import networkx as nx
import pytest
import torch
from torch import nn

from course.cluster.hardware import FDR, FREE, Cable
from course.cluster.placement import traced
from course.cluster.placement.costs import Costs
from tests.cluster.placement.machines import FAST, SLOW, pair, unequal

CABLE = Cable("by hand", 1e-3, 1e6, "test")


def graph():
    net = nn.Sequential(nn.Linear(100, 200, bias=False), nn.Linear(200, 50, bias=False))
    return traced(net, torch.ones(10, 100))


def test_a_kernel_takes_its_flops_or_its_bytes_whichever_is_longer():
    costs = Costs(graph(), unequal())
    nbytes = 4 * (10 * 100 + 100 * 200 + 10 * 200)
    for device, hardware in (("gpu 0", SLOW), ("gpu 1", FAST)):
        slower = max(2 * 10 * 100 * 200 / hardware.flops_per_s,
                     nbytes / hardware.memory_bytes_per_s)  # fmt: skip
        assert costs.seconds("_0", device) == slower
    activated = Costs(traced(nn.Sequential(nn.ReLU(), nn.ReLU()), torch.ones(1000)), unequal())
    two_kernels = 2 * 2 * 4000 / SLOW.memory_bytes_per_s
    assert activated.seconds("_0", "gpu 0") == pytest.approx(two_kernels)
    assert costs.mean_seconds("_0") == pytest.approx(
        (costs.seconds("_0", "gpu 0") + costs.seconds("_0", "gpu 1")) / 2
    )


def test_a_transfer_takes_its_latencies_and_its_bytes_on_the_narrowest_link():
    way = Costs(graph(), unequal(CABLE)).way("gpu 0", "gpu 1")
    assert way.seconds(500) == pytest.approx(2e-3 + 500e-6)
    assert [link.name for link in way.links] == [("gpu 0", "switch"), ("switch", "gpu 1")]


def test_upward_ranks_are_the_longest_way_to_the_end():
    costs = Costs(graph(), pair(CABLE))
    own = {name: costs.seconds(name, "gpu 0") for name in ("_0", "_1")}
    transfer = 2e-3 + 4 * 10 * 200 / 1e6
    assert costs.upward_ranks == pytest.approx(
        {"_1": own["_1"], "_0": own["_0"] + transfer + own["_1"]}
    )


def test_one_device_has_no_transfers_and_a_free_one_takes_no_time():
    costs = Costs(graph(), pair(FDR, 1, FREE))
    assert costs.upward_ranks == {"_0": 0, "_1": 0}


def test_a_machine_without_devices_or_links_is_refused():
    with pytest.raises(ValueError, match="one device or more"):
        Costs(graph(), nx.Graph())
    apart = pair()
    apart.remove_node("switch")
    with pytest.raises(ValueError, match="no links lead from gpu 0 to gpu 1"):
        Costs(graph(), apart).way("gpu 0", "gpu 1")
