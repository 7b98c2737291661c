"""Networks that join servers: one switch, a tree of leaves and spines, the fat tree of k-port
switches, adapters of their own, rails, a dragonfly.

Devices are numbered in the order of ranks; what their nodes and edges say is agreed in
`course/worlds/simulator/routes.py`.
"""

import itertools

import networkx as nx

from course.comm.counts import required_count
from course.learning.samples import check_not_negative
from course.worlds.simulator.routes import add_cable, add_device


def one_switch(count: int, device, cable) -> nx.Graph:
    """`count` devices, each in a server of its own, on one switch: a message crosses two cables."""
    required_count(count, "the number of devices")
    graph = nx.Graph()
    for number in range(count):
        add_device(graph, f"gpu {number}", device, number)
        add_cable(graph, f"gpu {number}", "switch", cable)
    return graph


def fat_tree(leaves: int, per_leaf: int, device, cable, oversubscription: float = 1) -> nx.Graph:
    """Leaves and spines: `leaves` switches with `per_leaf` devices each, and per_leaf /
    oversubscription switches above them, each on every leaf.

    Raises ValueError if that is not a whole number.  Source: Leiserson 1985.
    """
    required_count(leaves, "the number of leaves")
    spines = per_leaf / oversubscription if oversubscription > 0 else 0
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


def k_ary_fat_tree(k: int, device, cable) -> nx.Graph:
    """k^3/4 devices on three levels of 5k^2/4 switches with k ports each: k pods of k/2 edge and
    k/2 aggregation switches, and (k/2)^2 core switches, each on every pod.

    Raises ValueError for an odd k.  Source: Al-Fares, Loukissas & Vahdat 2008.
    """
    if k < 2 or k % 2:
        raise ValueError(f"a fat tree is made of switches of 2, 4, 6, ... ports, not of {k}")
    graph, half = nx.Graph(), k // 2
    for number in range(k * half**2):
        add_device(graph, f"gpu {number}", device, number)
        add_cable(graph, f"gpu {number}", f"edge {number // half}", cable)
    for edge in range(k * half):
        for number in range(half):
            above = edge // half * half + number  # in the same pod
            add_cable(graph, f"edge {edge}", f"aggregation {above}", cable)
    for number in range(k * half):
        for core in range(number % half * half, (number % half + 1) * half):
            add_cable(graph, f"aggregation {number}", f"core {core}", cable)
    return graph


def adapter_each(servers: int, per_server: int, device, inside, network) -> nx.Graph:
    """`per_server` devices on the switch of their server by a cable `inside`, and each on one
    switch of all by an adapter of its own: two cables `network`, as fast as one.
    """
    required_count(servers, "the number of servers")
    required_count(per_server, "the number of devices in a server")
    graph = nx.Graph()
    for number in range(servers * per_server):
        server = number // per_server
        add_device(graph, f"gpu {number}", device, server)
        add_cable(graph, f"gpu {number}", f"server {server}", inside)
        add_cable(graph, f"gpu {number}", f"adapter {number}", network)
        add_cable(graph, f"adapter {number}", "network", network)
    return graph


def rails(servers: int, per_server: int, device, inside, network, spines: int = 0) -> nx.Graph:
    """The same, but the adapters of all first devices are on one switch, rail 0, those of all
    second ones on rail 1, and so on; above the rails `spines` switches, each on every rail.

    Without spines no route leads from one rail to another.  Source: Wang et al. 2023,
    «Rail-only».
    """
    check_not_negative("the number of spines", spines)
    graph = adapter_each(servers, per_server, device, inside, network)
    graph.remove_node("network")
    for number in range(servers * per_server):
        add_cable(graph, f"adapter {number}", f"rail {number % per_server}", network)
    for rail in range(per_server):
        for spine in range(spines):
            add_cable(graph, f"rail {rail}", f"spine {spine}", network)
    return graph


def dragonfly(routers: int, per_router: int, far_cables: int, device, near, far) -> nx.Graph:
    """Groups of `routers` that all know one another by a cable `near`, each with `per_router`
    devices and `far_cables` to other groups; of these there are as many as the cables reach:
    routers far_cables + 1, with one cable `far` between any two.

    Source: Kim, Dally, Scott & Abts 2008.
    """
    required_count(routers, "the number of routers in a group")
    required_count(per_router, "the number of devices on a router")
    check_not_negative("the number of far cables", far_cables)
    graph, groups = nx.Graph(), routers * far_cables + 1
    for number in range(groups * routers * per_router):
        add_device(graph, f"gpu {number}", device, number)
        add_cable(graph, f"gpu {number}", f"router {number // per_router}", near)
    for group in range(groups):
        first = group * routers
        for one, other in itertools.combinations(range(first, first + routers), 2):
            add_cable(graph, f"router {one}", f"router {other}", near)
        for port in range(groups - 1):  # port n leads n + 1 groups on, to the port that leads back
            there = (group + port + 1) % groups * routers + (groups - 2 - port) // far_cables
            add_cable(graph, f"router {first + port // far_cables}", f"router {there}", far)
    return graph
