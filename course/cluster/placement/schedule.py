"""A placed graph in time: what each device does when, and what is on its way when.

    placed = schedule(graph, placement, machine)      placed.seconds, .spans, .transfers

The same object is drawn, and executed by `execution.execute`.
"""

from typing import NamedTuple

from course.cluster.placement.costs import Costs
from course.cluster.placement.graph import Graph, rooms
from course.cluster.placement.hand import check
from course.cluster.placement.timetable import Task, timetable


class Span(NamedTuple):
    """An operation on its device, and its seconds."""

    operation: str
    device: str
    start: float
    end: float


class Transfer(NamedTuple):
    """The answer of an operation on its way, so many `messages`; seconds in which it has its links
    for itself."""

    operation: str
    source: str
    target: str
    messages: int
    bytes: int
    start: float
    end: float


class Schedule(NamedTuple):
    """Operations and transfers in the order in which they begin."""

    graph: Graph
    placement: dict
    spans: list
    transfers: list

    def __repr__(self):
        return (f"<schedule of {len(self.spans)} operations and {len(self.transfers)} transfers on "
                f"{len(self.devices)} devices: {self.seconds:.3g} s>")  # fmt: skip

    @property
    def seconds(self) -> float:
        """Until the last operation ends."""
        return max(span.end for span in self.spans)

    @property
    def devices(self) -> list:
        """Those that have something to do, in the order in which they begin."""
        return list(dict.fromkeys(span.device for span in self.spans))

    @property
    def sent_bytes(self) -> int:
        return sum(transfer.bytes for transfer in self.transfers)

    @property
    def sent_messages(self) -> int:
        return sum(transfer.messages for transfer in self.transfers)

    def row(self, device) -> list:
        """The spans of a device, in their order."""
        return [span for span in self.spans if span.device == device]


def schedule(graph, placement, machine) -> Schedule:
    """What happens when the operations of `graph` are placed so on `machine`, {operation: device}.

    A device does one operation at a time, a link carries one transfer; of those that could begin
    the first is that of highest upward rank.  An answer goes once to each device that takes it,
    as soon as it is there; inputs are on all devices from the beginning.  Raises ValueError for a
    placement that cannot be, or devices between which no links lead.
    """
    costs = Costs(graph, machine)
    check(costs, placement)
    return scheduled(costs, placement)


def scheduled(costs, placement) -> Schedule:
    """The same, of a placement that is known to be possible."""
    spans, transfers, operations = [], [], costs.graph.operations
    for name, times in timetable(_tasks(costs, placement)).items():
        if isinstance(name, str):
            spans.append(Span(name, placement[name], *times))
        else:
            source, target = name
            gives = operations[source].gives
            transfers.append(Transfer(source, placement[source], target, len(rooms(gives)),
                                      operations[source].out_bytes, *times))  # fmt: skip
    return Schedule(costs.graph, placement, spans, transfers)


def _tasks(costs, placement) -> dict:
    """Of operations by name, and of transfers by (operation, device to which its answer goes)."""
    tasks, ranks, takers = {}, costs.upward_ranks, costs.takers
    for name, operation in costs.graph.operations.items():
        device = placement[name]
        after = tuple(source if placement[source] == device else (source, device)
                      for source in operation.takes)  # fmt: skip
        tasks[name] = Task(costs.seconds(name, device), (device,), after, ranks[name])
        urgent = {}
        for taker in takers[name]:
            urgent[placement[taker]] = max(ranks[taker], urgent.get(placement[taker], 0.0))
        for target, rank in urgent.items():
            if target != device:
                way = costs.way(device, target)
                seconds = costs.out_bytes[name] / way.bytes_per_s
                tasks[name, target] = Task(seconds, way.links, (name,), rank, way.latency_s)
    return tasks
