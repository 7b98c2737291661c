"""Machines that a plan may choose: servers of one kind, with what is known of them."""

from typing import NamedTuple

from course.cluster.hardware import (
    A100,
    ETHERNET_1G,
    ETHERNET_10G,
    H100,
    HDR,
    NDR,
    NVLINK_A100,
    NVLINK_H100,
    PCIE_3,
    Cable,
    Device,
)
from course.cluster.scaling.work import DEVICE


class NodeType(NamedTuple):
    """Servers with `cards` devices on `inside` cables; each card has an adapter `network` of its
    own, or all of a server share one.  `watts`: of a server, at most.
    """

    name: str
    device: Device
    cards: int
    inside: Cable
    network: Cable
    shared: bool
    watts: float
    source: str

    def cluster(self, nodes: int, achieved: float = 1.0):
        """So many of them on one switch, as a graph for `simulated`, whose cards reach the share
        `achieved` of their arithmetic."""
        from course.cluster.fabric import adapter_each, ethernet_box  # here: ranks need no networkx

        device = self.device._replace(flops_per_s=achieved * self.device.flops_per_s)
        if self.shared:
            return ethernet_box(nodes, self.cards, device, self.inside, self.network)
        return adapter_each(nodes, self.cards, device, self.inside, self.network)


_A100 = "watts found: DGX A100, 6.5 kW at most; an adapter a card: memory H"
DGX_A100 = NodeType("A100", A100, 8, NVLINK_A100, HDR, False, 6500, _A100)
A100_ETHERNET = NodeType("A100, 10 Gb/s", A100, 8, NVLINK_A100, ETHERNET_10G, True, 6500,
                         "imagined: the same server with one cheap adapter")  # fmt: skip
DGX_H100 = NodeType("H100", H100, 8, NVLINK_H100, NDR, False, 10200,
                    "watts found: DGX H100, 10.2 kW; an adapter a card: memory H")  # fmt: skip
RESTING = NodeType("two resting ranks", DEVICE, 2, PCIE_3, ETHERNET_1G, True, 0,
                   "imagined: ranks of this machine, in hosts in a box")  # fmt: skip
