"""A cluster as a graph: its devices, its links, and the route between any two devices.

Nodes with an attribute `device` compute, the others pass on; a node's `server` says in which
machine it is.  Edges have `latency_s` and `bytes_per_s`; a cable of an undirected graph carries so
much in each direction.  `add_device` and `add_cable` make such graphs.
"""

from collections import deque

from course.worlds.simulator.flows import Link, Route


def add_device(graph, node, device, server):
    """A node that computes, in the machine `server`.  Devices have the order of ranks."""
    graph.add_node(node, device=device, server=server)


def add_cable(graph, one, other, cable):
    """Connect two nodes."""
    graph.add_edge(one, other, latency_s=cable.latency_s, bytes_per_s=cable.bytes_per_s)


class Routes:
    """The links of `graph`, and routes over as few of them as possible.

    Of several such routes the number of the target picks one, a digit of it at each crossing, as
    in the tables of the switches of a fat tree: the same for all that goes there.
    """

    def __init__(self, graph):
        self.devices = [node for node, device in graph.nodes(data="device") if device is not None]
        self.numbers = {node: number for number, node in enumerate(self.devices)}
        self.graph, self.links, self.distances = graph, {}, {}
        for one, other, cable in graph.edges(data=True):
            for ends in [(one, other)] if graph.is_directed() else [(one, other), (other, one)]:
                self.links[ends] = _link(ends, cable, len(self.links))
        self.before = {node: [] for node in graph}
        self.after = {node: [] for node in graph}
        for one, other in self.links:
            self.after[one].append(other)
            if one not in self.numbers:  # a device passes nothing on
                self.before[other].append(one)

    def route(self, src, dst) -> Route:
        """The links from device `src` to device `dst`.  Raises ValueError if there are none."""
        left, here, links, digits = self._distances(dst), src, [], self.numbers[dst]
        ways = [left[node] + 1 for node in self.after[src] if node in left]
        if src != dst and not ways:
            raise ValueError(f"no links lead from {src} to {dst}")
        for number in reversed(range(min(ways) if src != dst else 0)):
            nearer = self._nearer(here, left, number) if number else [dst]
            digits, way = divmod(digits, len(nearer))
            there = nearer[way]
            links.append(self.links[here, there])
            here = there
        return Route(links)

    def _nearer(self, here, left, number) -> list:
        """The nodes behind `here` from which so many links are left."""
        return [node for node in self.after[here] if left.get(node) == number]

    def named(self, number: int) -> Link:
        """The link that has this number."""
        return list(self.links.values())[number]

    def _distances(self, dst) -> dict:
        """How many links are left to `dst` from every node that passes something on."""
        if dst not in self.distances:
            found, todo = {dst: 0}, deque([dst])
            while todo:
                node = todo.popleft()
                fresh = [before for before in self.before[node] if before not in found]
                found.update(dict.fromkeys(fresh, found[node] + 1))
                todo += fresh
            self.distances[dst] = found
        return self.distances[dst]


def _link(ends, cable, number) -> Link:
    latency_s, bytes_per_s = cable.get("latency_s"), cable.get("bytes_per_s")
    if latency_s is None or bytes_per_s is None or latency_s < 0 or not bytes_per_s > 0:
        raise ValueError(
            f"the link {ends[0]} → {ends[1]} needs latency_s ≥ 0 and bytes_per_s > 0, "
            f"not {latency_s} and {bytes_per_s}"
        )
    return Link(ends, latency_s, bytes_per_s, number)
