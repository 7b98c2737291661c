"""Machines that the tests place on."""

import networkx as nx

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, GTX_680, P100, PCIE_3
from course.worlds.simulator.routes import add_cable, add_device

SLOW, FAST = GTX_680, P100


def pair(cable=PCIE_3, count=2, device=P100):
    return one_switch(count, device, cable)


def unequal(cable=FDR):
    """A slow device, named first, and a fast one."""
    graph = nx.Graph()
    for number, device in enumerate((SLOW, FAST)):
        add_device(graph, f"gpu {number}", device, 0)
        add_cable(graph, f"gpu {number}", "switch", cable)
    return graph


def short_of_memory(nbytes, count=2, cable=PCIE_3):
    """Devices that hold so many bytes."""
    return one_switch(count, P100._replace(memory_bytes=nbytes), cable)
