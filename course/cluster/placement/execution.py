"""A placed graph, really run: a rank for each of its devices, which does that device's operations
in the order of the schedule and sends their answers where the schedule sends them."""

import torch
from torch.utils._pytree import tree_leaves, tree_map

from course.cluster.placement.graph import Room, filled
from course.worlds.launch import run


def execute(schedule, *inputs, on=None, trace=None):
    """The module's answer to `inputs`, of the shapes that were traced, computed by as many ranks as
    the schedule has devices: rank 0 is `schedule.devices[0]`.

    Cost: the schedule's transfers, a message for each tensor.  Inputs and weights are on all ranks;
    no gradients.  `on` and `trace` are those of `run`: the schedule's own cluster is
    simulated(machine, placement=schedule.devices).  Raises ValueError for other inputs.
    """
    values = schedule.graph.named_inputs(inputs)
    for found in run(_work, len(schedule.devices), schedule, values, on=on, trace=trace):
        values |= found
    return filled(schedule.graph.output, schedule.graph.module, values)


def _work(comm, schedule, values) -> dict:
    """What one rank finds of the module's answer: {answer: value}."""
    graph, mail = schedule.graph, _Mail(comm, schedule)
    own = set()
    with torch.no_grad():
        for span in schedule.row(schedule.devices[comm.rank]):
            operation = graph.operations[span.operation]
            own.add(operation.answer)
            values |= mail.received(operation.takes)
            values[operation.answer] = operation.value(graph.module, values)
            mail.send(operation, values[operation.answer])
    mail.settle()
    return {answer: values[answer] for answer in graph.answers if answer in own}


class _Mail:
    """What comes to a rank and leaves it: a message a tensor, with its operation's number."""

    def __init__(self, comm, schedule):
        self.comm, self.operations = comm, schedule.graph.operations
        ranks = {device: rank for rank, device in enumerate(schedule.devices)}
        self.tags = {name: number for number, name in enumerate(self.operations)}
        self.targets, self.coming, self.sent = {}, {}, []
        for each in schedule.transfers:
            if ranks[each.source] == comm.rank:
                self.targets.setdefault(each.operation, []).append(ranks[each.target])
            elif ranks[each.target] == comm.rank:
                self.coming[each.operation] = self._expected(each.operation, ranks[each.source])

    def _expected(self, name, rank):
        """Room for an answer, and what is to be waited for until it is there."""
        value = tree_map(self._room, self.operations[name].gives)
        return value, [self.comm.irecv(x, rank, self.tags[name]) for x in _tensors(value)]

    def _room(self, thing):
        if not isinstance(thing, Room):
            return thing
        return torch.empty(thing.shape, dtype=thing.dtype, device=self.comm.device)

    def received(self, names) -> dict:
        """{answer: value} of those of the operations `names` that are on other ranks, once each."""
        found = {}
        for name in names:
            if name in self.coming:
                value, waits = self.coming.pop(name)
                for wait in waits:
                    wait.wait()
                found[self.operations[name].answer] = value
        return found

    def send(self, operation, value):
        """Begin to send an answer to the ranks that take it."""
        for rank in self.targets.get(operation.name, ()):
            self.sent += [self.comm.isend(x.contiguous(), rank, self.tags[operation.name])
                          for x in _tensors(value)]  # fmt: skip

    def settle(self):
        for handle in self.sent:
            handle.wait()


def _tensors(value) -> list:
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]
