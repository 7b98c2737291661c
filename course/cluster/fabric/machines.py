"""Machines of the decks: that of Coates et al. 2013, the three DGX-1 clusters of deck N, and the
Ethernet in a box of `course.worlds.netns.world`.
"""

import networkx as nx

from course.cluster.fabric.servers import DGX_1, CubeMesh, add_dgx_1
from course.cluster.hardware import EDR, FDR, GTX_680, PCIE_3, bundle
from course.comm.counts import required_count
from course.worlds.simulator.routes import add_cable, add_device

SERVERS_PER_RACK, WATTS_PER_SERVER, ADAPTERS = 6, 3200, 4  # of DGX-1, deck N


def coates_2013(
    servers: int = 16, per_server: int = 4, device=GTX_680, network=FDR, inside=PCIE_3
) -> nx.Graph:
    """Servers of four GTX 680 with one FDR InfiniBand adapter each, on one switch; or of others.

    The GPUs of a server share its adapter.  Found: 16 servers; seed C, K: four GPUs and one adapter
    each.  Assumed: each GPU on PCIe 3.0 x16, the adapter no narrower than its cable.
    """
    names = "gpu", "server", "switch"
    return _shared_adapters(servers, per_server, device, inside, network, names)


def ethernet_box(hosts: int, ranks_per_host: int, device, inside, ethernet) -> nx.Graph:
    """What `hosts()` has: hosts with an `ethernet` cable each to one switch; the ranks of a host
    reach it, and one another, through `inside`, the memory that they share."""
    names = "rank", "host", "switch"
    return _shared_adapters(hosts, ranks_per_host, device, inside, ethernet, names)


def _shared_adapters(servers, each, device, inside, network, names) -> nx.Graph:
    """`each` devices of a server reach one another, and the one cable to a switch, by `inside`."""
    required_count(servers, "the number of servers")
    required_count(each, "the number of devices in a server")
    graph, (name, place, switch) = nx.Graph(), names
    for number in range(servers * each):
        server = number // each
        add_device(graph, f"{name} {number}", device, server)
        add_cable(graph, f"{name} {number}", f"{place} {server}", inside)
    for server in range(servers):
        add_cable(graph, f"{place} {server}", switch, network)
    return graph


def dgx_small(servers: int = 12, model: CubeMesh = DGX_1) -> nx.Graph:
    """Up to 12 DGX-1 in two racks, six on each of two 36-port EDR switches; what the servers of a
    full rack leave free of them, 12 ports, is cabled to the other switch.

    Raises ValueError for more servers.  Source: deck N.
    """
    if not 1 <= servers <= 2 * SERVERS_PER_RACK:
        raise ValueError(f"a small cluster has 1 to {2 * SERVERS_PER_RACK} servers, not {servers}")
    graph = nx.Graph()
    for first in range(0, servers, SERVERS_PER_RACK):
        there = range(first, min(first + SERVERS_PER_RACK, servers))
        _add_pod(graph, f"switch {first // SERVERS_PER_RACK}", 36, there, model)
    if servers > SERVERS_PER_RACK:
        add_trunk(graph, "switch 0", "switch 1", 36 - ADAPTERS * SERVERS_PER_RACK)
    return graph


def dgx_medium(servers: int = 36, model: CubeMesh = DGX_1) -> nx.Graph:
    """A pod: up to 36 DGX-1 in six racks on one 216-port EDR director, which leaves 72 ports free.

    A director is itself a fat tree that blocks nothing: one node here.  Raises ValueError where
    its ports do not suffice.  Source: deck N.
    """
    graph = nx.Graph()
    _add_pod(graph, "director 0", 216, range(servers), model)
    return graph


def dgx_large(pods: int = 4, servers: int = 36, uplinks: int = 72, model=DGX_1) -> nx.Graph:
    """`pods` of `servers` each, 144 in all, with so many `uplinks` each to one 324-port director.

    Raises ValueError where the ports do not suffice.  Source: deck N.
    """
    graph = nx.Graph()
    graph.add_node("top", ports=324)
    for pod in range(pods):
        there = range(pod * servers, (pod + 1) * servers)
        _add_pod(graph, f"director {pod}", 216, there, model)
        add_trunk(graph, f"director {pod}", "top", uplinks)
    return graph


def add_trunk(graph: nx.Graph, one: str, other: str, cables: int):
    """Join two switches by so many EDR cables.

    Raises ValueError where one of them has no such number of ports left.
    """
    for switch in (end for end in (one, other) if "ports" in graph.nodes[end]):
        if cables > (free := ports_left(graph, switch)):
            raise ValueError(f"{switch} has {free} ports left, and {cables} cables need one each")
    add_cable(graph, one, other, bundle(cables, EDR))
    graph.edges[one, other]["cables"] = cables


def ports_left(graph: nx.Graph, switch: str) -> int:
    """How many ports of a switch have no cable yet."""
    return graph.nodes[switch]["ports"] - graph.degree(switch, weight="cables")


def _add_pod(graph, switch, ports, servers, model):
    """Add DGX-1s with the numbers `servers`, all their adapters on a switch of so many ports."""
    required_count(len(servers), "the number of servers")
    graph.add_node(switch, ports=ports)
    for server in servers:
        add_dgx_1(graph, server, model)
        rack = server // SERVERS_PER_RACK
        graph.nodes[f"cpu {server}.0"].update(rack=rack, watts=WATTS_PER_SERVER)
        for number in range(ADAPTERS):
            add_trunk(graph, switch, f"adapter {server}.{number}", 1)
