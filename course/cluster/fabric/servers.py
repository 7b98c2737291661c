"""What is inside a server: PCIe trees, three wirings of eight GPUs, the NVLinks of a DGX-1."""

import itertools
from typing import NamedTuple

import networkx as nx

from course.cluster.hardware import (
    M40,
    NVLINK_1,
    NVLINK_2,
    P100,
    PCIE_3,
    QPI,
    V100,
    Cable,
    Device,
    bundle,
)
from course.comm.counts import required_count
from course.worlds.simulator.routes import add_cable, add_device


def pcie_tree(switches: int, per_switch: int, device, cable=PCIE_3) -> nx.Graph:
    """One server: `per_switch` devices on each PCIe switch, all switches on the CPU.

    The cable of a switch to the CPU is shared by its devices.
    """
    required_count(switches, "the number of switches")
    required_count(per_switch, "the number of devices on a switch")
    graph = nx.Graph()
    for number in range(switches * per_switch):
        switch = f"switch {number // per_switch}"
        add_device(graph, f"gpu {number}", device, 0)
        add_cable(graph, f"gpu {number}", switch, cable)
        add_cable(graph, switch, "cpu", cable)
    return graph


WIRINGS = {  # what joins two PCIe switches with four GPUs each
    "two sockets": (("switch 0", "cpu 0", PCIE_3), ("cpu 0", "cpu 1", QPI),
                    ("cpu 1", "switch 1", PCIE_3)),
    "one socket": (("switch 0", "cpu", PCIE_3), ("cpu", "switch 1", PCIE_3)),
    "cascade": (("cpu", "switch 0", PCIE_3), ("switch 0", "switch 1", PCIE_3)),
}  # fmt: skip


def big_sur(wiring: str) -> nx.Graph:
    """Eight Tesla M40 on two PCIe switches, joined in one of WIRINGS.

    Found: eight GPUs, M40, several topologies by swapping cables.  Chosen: these three, as servers
    of eight GPUs have them; which of deck F's A, D and E is which, if any, is lost.
    Raises ValueError for another wiring.
    """
    if wiring not in WIRINGS:
        raise ValueError(f"Big Sur is wired as one of {', '.join(WIRINGS)}, not {wiring!r}")
    graph = nx.Graph()
    for number in range(8):
        add_device(graph, f"gpu {number}", M40, 0)
        add_cable(graph, f"gpu {number}", f"switch {number // 4}", PCIE_3)
    for cable in WIRINGS[wiring]:
        add_cable(graph, *cable)
    return graph


class CubeMesh(NamedTuple):
    """Eight devices: two fours that know one another, and a link from each to its counterpart.

    The pairs that are `doubled` have two links.
    """

    device: Device
    link: Cable
    doubled: tuple = ()

    def cables(self):
        """The pairs of devices with what joins them."""
        fours = itertools.chain(
            *(itertools.combinations(four, 2) for four in (range(4), range(4, 8)))
        )
        for pair in (*fours, *((number, number + 4) for number in range(4))):
            yield *pair, bundle(2, self.link) if pair in self.doubled else self.link


# The mesh: NVIDIA's white paper (found: leslivresblancs, iptronics).  Which pairs of V100 have two
# links: GPUs 0 and 1 found, NVIDIA/nccl issue 671; the others memory H.
DGX_1 = CubeMesh(P100, NVLINK_1)
DGX_1V = CubeMesh(V100, NVLINK_2, ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)))
# Rings that together use every link once; each counts twice, as links have two directions.
DGX_1_RINGS = ((0, 1, 2, 3, 7, 6, 5, 4), (0, 2, 6, 4, 7, 5, 1, 3))
DGX_1V_RINGS = ((0, 3, 2, 1, 5, 6, 7, 4),) * 2 + ((0, 1, 3, 7, 5, 4, 6, 2),)


def dgx_1(model: CubeMesh = DGX_1) -> nx.Graph:
    """One server of eight GPUs in a hybrid cube mesh, with four adapters that lead nowhere yet."""
    graph = nx.Graph()
    add_dgx_1(graph, 0, model)
    return graph


def add_dgx_1(graph: nx.Graph, server: int, model: CubeMesh):
    """Add the GPUs of the DGX-1 number `server`, and its nodes `adapter S.0` to `adapter S.3`.

    Two GPUs and an adapter are on each PCIe switch, two of these on each CPU: memory H.
    """
    gpus = [f"gpu {8 * server + number}" for number in range(8)]
    for number, gpu in enumerate(gpus):
        add_device(graph, gpu, model.device, server)
        add_cable(graph, gpu, f"pcie {server}.{number // 2}", PCIE_3)
    for one, other, cable in model.cables():
        add_cable(graph, gpus[one], gpus[other], cable)
    for number in range(4):
        add_cable(graph, f"pcie {server}.{number}", f"adapter {server}.{number}", PCIE_3)
        add_cable(graph, f"pcie {server}.{number}", f"cpu {server}.{number // 2}", PCIE_3)
    add_cable(graph, f"cpu {server}.0", f"cpu {server}.1", QPI)
