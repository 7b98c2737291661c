"""What operations and transfers cost on a machine: seconds at the published peak of each part."""

from functools import cached_property
from itertools import permutations
from typing import NamedTuple

from course.worlds.simulator.op_counter import roofline
from course.worlds.simulator.routes import Routes


class Way(NamedTuple):
    """From one device to another: seconds before the first byte, bytes a second, links used."""

    latency_s: float
    bytes_per_s: float
    links: tuple

    def seconds(self, nbytes: float) -> float:
        """Until `nbytes` have arrived, if nothing else is on the way."""
        return self.latency_s + nbytes / self.bytes_per_s


class Costs:
    """Of the operations of `graph` on the devices of `machine`, a networkx graph as in `fabric`."""

    def __init__(self, graph, machine):
        self.graph, self.routes = graph, Routes(machine)
        self.devices = self.routes.devices
        self._hardware = {name: machine.nodes[name]["device"] for name in self.devices}
        self.takers, self.groups = graph.takers, graph.groups()
        self.out_bytes = {name: each.out_bytes for name, each in graph.operations.items()}
        self._seconds, self._ways = {}, {}
        if not self.devices:
            raise ValueError("a machine has one device or more, and this one has none")

    def seconds(self, name: str, device) -> float:
        """Of an operation on a device: of each of its kernels max(flops / rate, bytes / rate)."""
        if (name, device) not in self._seconds:
            kernels = self.graph.operations[name].kernels
            each = (roofline(*kernel, self._hardware[device]) for kernel in kernels)
            self._seconds[name, device] = sum(each)
        return self._seconds[name, device]

    def way(self, source, target) -> Way:
        """From one device to another.  Raises ValueError where no links lead there."""
        if (source, target) not in self._ways:
            route = self.routes.route(source, target)
            way = Way(route.latency_s, route.bottleneck.bytes_per_s, route.links)
            self._ways[source, target] = way
        return self._ways[source, target]

    def mean_seconds(self, name: str) -> float:
        """Of an operation, over all devices."""
        return sum(self.seconds(name, device) for device in self.devices) / len(self.devices)

    @cached_property
    def mean_way(self) -> Way:
        """Of all ways from one device to another, the mean latency and the mean time of a byte."""
        ways = [self.way(*pair) for pair in permutations(self.devices, 2)]
        if not ways:
            return Way(0.0, float("inf"), ())
        latency_s = sum(way.latency_s for way in ways) / len(ways)
        return Way(latency_s, len(ways) / sum(1 / way.bytes_per_s for way in ways), ())

    @cached_property
    def upward_ranks(self) -> dict:
        """{name: seconds from its start to the end of all, on the longest way}, by mean costs.

        Source: Topcuoglu, Hariri & Wu 2002, section 4 (rank_u).
        """
        ranks = {}
        for name in reversed(self.graph.operations):
            away = self.mean_way.seconds(self.out_bytes[name])
            after = max((away + ranks[taker] for taker in self.takers[name]), default=0.0)
            ranks[name] = self.mean_seconds(name) + after
        return ranks

    def memory(self, device) -> float:
        """Bytes that a device holds."""
        return self._hardware[device].memory_bytes

    def weight_bytes(self, group) -> int:
        """Of the operations `group`, a weight that several read counted once."""
        weights = {}
        for name in group:
            weights.update(self.graph.operations[name].weights)
        return sum(weights.values())

    def used(self, placement) -> dict:
        """{device: bytes of the weights placed on it}; of a group all or none are placed."""
        used = {}
        for group in self.groups:
            if group[0] in placement:
                device = placement[group[0]]
                used[device] = used.get(device, 0) + self.weight_bytes(group)
        return used

    def fit(self, used) -> bool:
        """Whether all devices hold what is `used` {device: bytes} of them."""
        return all(nbytes <= self.memory(device) for device, nbytes in used.items())
