"""Clusters as networkx graphs, ready for `simulated`: one switch, a PCIe tree, a fat tree, servers
with an adapter for each device, the machine of Coates et al. 2013, the Ethernet in a box of
`course.worlds.netns.world`.

Devices are numbered in the order of ranks; what their nodes and edges say is agreed in
`course/worlds/simulator/routes.py`.
"""

import networkx as nx

from course.cluster.hardware import FDR, GTX_680, PCIE_3
from course.worlds.simulator.routes import add_cable, add_device


def one_switch(count: int, device, cable) -> nx.Graph:
    """`count` devices, each in a server of its own, on one switch: a message crosses two cables."""
    graph = nx.Graph()
    for number in range(count):
        add_device(graph, f"gpu {number}", device, number)
        add_cable(graph, f"gpu {number}", "switch", cable)
    return graph


def pcie_tree(switches: int, per_switch: int, device, cable=PCIE_3) -> nx.Graph:
    """One server: `per_switch` devices on each PCIe switch, all switches on the CPU.

    The cable of a switch to the CPU is shared by its devices.
    """
    graph = nx.Graph()
    for number in range(switches * per_switch):
        switch = f"switch {number // per_switch}"
        add_device(graph, f"gpu {number}", device, 0)
        add_cable(graph, f"gpu {number}", switch, cable)
        add_cable(graph, switch, "cpu", cable)
    return graph


def fat_tree(leaves: int, per_leaf: int, device, cable, oversubscription: float = 1) -> nx.Graph:
    """`leaves` switches with `per_leaf` devices each, and per_leaf / oversubscription switches
    above them, each on every leaf.

    Raises ValueError if that is not a whole number.  Source: Leiserson 1985.
    """
    spines = per_leaf / oversubscription
    if spines != int(spines) or spines < 1:
        raise ValueError(
            f"{per_leaf} cables down and an oversubscription of {oversubscription} make "
            f"{spines:g} cables up, which is no whole number of switches"
        )
    graph = nx.Graph()
    for number in range(leaves * per_leaf):
        leaf = f"leaf {number // per_leaf}"
        add_device(graph, f"gpu {number}", device, number)
        add_cable(graph, f"gpu {number}", leaf, cable)
    for leaf in range(leaves):
        for spine in range(int(spines)):
            add_cable(graph, f"leaf {leaf}", f"spine {spine}", cable)
    return graph


def adapter_each(servers: int, per_server: int, device, inside, network) -> nx.Graph:
    """`per_server` devices on the switch of their server by a cable `inside`, and each on one
    switch of all by an adapter of its own: two cables `network`, as fast as one.
    """
    graph = nx.Graph()
    for number in range(servers * per_server):
        server = number // per_server
        add_device(graph, f"gpu {number}", device, server)
        add_cable(graph, f"gpu {number}", f"server {server}", inside)
        add_cable(graph, f"gpu {number}", f"adapter {number}", network)
        add_cable(graph, f"adapter {number}", "network", network)
    return graph


def coates_2013(
    servers: int = 16, per_server: int = 4, device=GTX_680, network=FDR, inside=PCIE_3
) -> nx.Graph:
    """Servers of four GTX 680 with one FDR InfiniBand adapter each, on one switch; or of others.

    The GPUs of a server share its adapter.  Found: 16 servers; seed C, K: four GPUs and one adapter
    each.  Assumed: each GPU on PCIe 3.0 x16, the adapter no narrower than its cable.
    """
    graph = nx.Graph()
    for number in range(servers * per_server):
        server = number // per_server
        add_device(graph, f"gpu {number}", device, server)
        add_cable(graph, f"gpu {number}", f"server {server}", inside)
    for server in range(servers):
        add_cable(graph, f"server {server}", "infiniband", network)
    return graph


def ethernet_box(hosts: int, ranks_per_host: int, device, inside, ethernet) -> nx.Graph:
    """What `hosts()` has: hosts with an `ethernet` cable each to one switch; the ranks of a host
    reach it, and one another, through `inside`, the memory that they share."""
    graph = nx.Graph()
    for rank in range(hosts * ranks_per_host):
        host = rank // ranks_per_host
        add_device(graph, f"rank {rank}", device, host)
        add_cable(graph, f"rank {rank}", f"host {host}", inside)
    for host in range(hosts):
        add_cable(graph, f"host {host}", "switch", ethernet)
    return graph
