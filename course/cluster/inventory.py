"""What a cluster has, counted from its graph: devices, ports, cables, racks, power, and how much
narrower it is above a switch, or in the middle, than below.
"""

from collections import Counter
from typing import NamedTuple

import networkx as nx

from course.worlds.simulator.routes import Routes


class Inventory(NamedTuple):
    """`ports` {switch: (used, in all)} of the switches whose number of ports is known; `cables`
    between switches, and between them and the servers; `rack_watts` {rack: power of its servers}.
    """

    devices: int
    servers: int
    ports: dict
    cables: int
    rack_watts: dict


def inventory(graph: nx.Graph) -> Inventory:
    """Count what `graph` has.  Power and racks are those that its nodes tell (`watts`, `rack`)."""
    known = {node: ports for node, ports in graph.nodes(data="ports") if ports is not None}
    used = {node: graph.degree(node, weight="cables") for node in known}
    cabled = {frozenset(ends) for switch in known for ends in graph.edges(switch)}
    watts = Counter()
    for _, node in graph.nodes(data=True):
        if "rack" in node:
            watts[node["rack"]] += node["watts"]
    return Inventory(
        devices=len(Routes(graph).devices),
        servers=len({place for _, place in graph.nodes(data="server") if place is not None}),
        ports={node: (used[node], known[node]) for node in known},
        cables=sum(graph.edges[tuple(ends)].get("cables", 1) for ends in cabled),
        rack_watts=dict(watts),
    )


def oversubscription(graph: nx.Graph, switch) -> float:
    """Bytes a second of the cables from `switch` down, over those of its other cables.

    Down is where it is nearer to a device.  Raises ValueError where no cable leads elsewhere, or no
    device reaches it.
    """
    devices = Routes(graph).devices
    height = nx.multi_source_dijkstra_path_length(graph, devices, weight=None) if devices else {}
    if switch not in height:
        raise ValueError(f"no device reaches {switch}, so nothing is below it")
    down = up = 0.0
    for _, other, cable in graph.edges(switch, data=True):
        if height[other] < height[switch]:
            down += cable["bytes_per_s"]
        else:
            up += cable["bytes_per_s"]
    if not up:
        raise ValueError(f"no cable of {switch} leads up, so there is nothing to be narrower")
    return down / up


def bisection_bytes_per_s(graph: nx.Graph) -> float:
    """Bytes a second, in one direction, from the first half of the devices to the second.

    Raises ValueError for fewer than two devices.
    """
    devices, cut = Routes(graph).devices, nx.Graph(graph)
    if len(devices) < 2:
        raise ValueError(f"2 devices or more have a middle, not {len(devices)}")
    half = len(devices) // 2
    cut.add_edges_from(("first half", device) for device in devices[:half])
    cut.add_edges_from((device, "second half") for device in devices[half:])
    return nx.maximum_flow_value(cut, "first half", "second half", capacity="bytes_per_s")
