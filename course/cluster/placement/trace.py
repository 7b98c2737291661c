"""From a module to its graph, by torch.fx: nothing is computed, so that any size will do."""

import copy
import itertools
from collections import Counter

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves, tree_map

from course.cluster.placement.graph import (
    META,
    Attribute,
    Call,
    Graph,
    Kernel,
    Operation,
    Value,
    attribute,
    described,
    leaves,
    rooms,
)
from course.worlds.simulator.op_counter import OpCounter


def traced(module, *example) -> Graph:
    """The graph of `module`, called with inputs such as `example`; of these the shapes matter.

    A call without arithmetic that alone goes on with one answer is one operation with what gave it:
    conv, batch norm, ReLU.  What a forward makes of shapes alone, or of nothing, is a constant.
    Work is counted on the meta device, as on the imagined cluster.  Raises ValueError for a forward
    whose way depends on values, that draws random numbers, or changes in place what a call gave.
    """
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"a module is traced, not {module!r}")
    kept = copy.deepcopy(module)
    try:
        nodes = fx.Tracer().trace(kept)
    except Exception as error:  # whatever a forward does with tensors that have no values
        raise ValueError(f"{_name(module)} has no graph before it runs: {error}") from error
    return _Tracing(kept, example).graph(nodes)


class _Tracing:
    """Goes through the nodes of a graph on the meta device.

    `refs` {name of a node: what stands for it in later calls}, `seen` {name: its value}, `calls`
    [(call, kernels, weights)] in their order.
    """

    def __init__(self, module, example):
        self.kept, self.example, self.left = module, example, list(example)
        self.module = copy.deepcopy(module).to(META)
        named = itertools.chain(module.named_parameters(), module.named_buffers())
        self.names = {id(x): name for name, x in named}
        self.refs, self.seen, self.inputs, self.calls = {}, {}, {}, []

    def graph(self, nodes) -> Graph:
        for node in nodes.nodes:
            if node.op == "placeholder":
                self._input(node)
            elif node.op == "get_attr":
                self._attribute(node)
            elif node.op != "output":
                self._call(node)
        if self.left or not self.calls:
            raise ValueError(f"{_name(self.kept)} takes {len(self.inputs)} inputs and makes "
                             f"{len(self.calls)} calls, and the example has "
                             f"{len(self.example)} inputs")  # fmt: skip
        graph = Graph(self.kept, {}, self.inputs, map_aggregate(node.args[0], self._ref))
        return graph._replace(operations=self._operations(graph.answers))

    def _input(self, node):
        if node.target.startswith("*"):
            raise ValueError(f"{_name(self.kept)} takes any number of inputs, {node.target}, and a "
                             "graph takes as many as it has names for")  # fmt: skip
        if self.left:
            given = self.left.pop(0)
            self.inputs[node.name], self.refs[node.name] = described(given), Value(node.name)
            self.seen[node.name] = tree_map(_on_meta, given)
        elif node.args:
            self.refs[node.name] = node.args[0]  # its default
        else:
            raise ValueError(f"{_name(self.kept)} also takes {node.name}, and the example has "
                             f"{len(self.example)} inputs")  # fmt: skip

    def _attribute(self, node):
        """A weight, or a tensor that is none, which did not go to the meta device with them."""
        self.refs[node.name] = Attribute(node.target)
        owner, _, name = node.target.rpartition(".")
        if not (x := attribute(self.module, node.target)).is_meta:
            setattr(self.module.get_submodule(owner), name, x.to(META))

    def _call(self, node):
        args, kwargs = map_aggregate((node.args, node.kwargs), self._ref)
        call = Call(node.name, node.op, node.target, args, kwargs)
        try:
            answer, kernels = self._watched(call)
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{call.name} cannot be traced with this example: {error}") from error
        self.seen[node.name], self.refs[node.name] = answer, answer
        if rooms(described(answer)):
            self.refs[node.name] = Value(node.name)
            self.calls.append((call, kernels, self._weights(call)))

    def _watched(self, call):
        """The answer of a call and its kernels.  Raises ValueError for what has no one value."""
        taken = tree_leaves([self.seen[name] for name in _values(call)])
        tensors = [x for x in taken if isinstance(x, torch.Tensor)]
        before, counted = [x._version for x in tensors], _Counted(call.name)
        with torch.no_grad():
            call.value(self.module, self.seen)
            if before != [x._version for x in tensors]:
                raise ValueError(f"{call.name} changes in place what it takes, and who sees that "
                                 "would depend on the devices: use inplace=False")  # fmt: skip
            with OpCounter(counted):
                answer = call.value(self.module, self.seen)
        return answer, counted.kernels

    def _weights(self, call) -> dict:
        """{name: bytes} of what a call reads; a weight with two names goes by the first."""
        found = [attribute(self.kept, x.path) for x in leaves(call[3:]) if isinstance(x, Attribute)]
        if call.kind == "call_module":
            module = self.kept.get_submodule(call.target)
            found += [*module.parameters(), *module.buffers()]
        return {self.names[id(x)]: x.nbytes for x in found if id(x) in self.names}

    def _operations(self, answers) -> dict:
        """{name: Operation}, where calls that only go on with an answer are joined to it."""
        users, part, found, needed = Counter(answers), {}, {}, []
        for entry in reversed(self.calls):
            if users[entry[0].name]:
                users.update(_values(entry[0]))
                needed.append(entry)
        for call, kernels, weights in reversed(needed):
            taken = _values(call)
            one = Operation(call.name, (), (), tuple(dict.fromkeys(
                part[name] for name in taken if name in part)), {}, ())  # fmt: skip
            alone = len(taken) == 1 and users[taken[0]] == 1 and taken[0] in part
            if alone and not any(kernel.flops for kernel in kernels):
                one = found[part[taken[0]]]
            part[call.name], gives = one.name, described(self.seen[call.name])
            found[one.name] = one._replace(calls=(*one.calls, call), gives=gives,
                kernels=(*one.kernels, *kernels), weights=one.weights | weights)  # fmt: skip
        return found

    def _ref(self, thing):
        return self.refs[thing.name] if isinstance(thing, fx.Node) else thing


class _Counted:
    """What an OpCounter tells of one call."""

    def __init__(self, name):
        self.name, self.kernels, self.random = name, [], self

    def charge(self, name, flops, nbytes):
        self.kernels.append(Kernel(name, flops, nbytes))

    def switch(self):
        raise ValueError(f"{self.name} draws random numbers, which are others on every device: "
                         "trace it in eval()")  # fmt: skip


def _values(call) -> list:
    """The names of all Values that a call takes."""
    found = leaves((call.args, call.kwargs))
    return list(dict.fromkeys(x.name for x in found if isinstance(x, Value)))


def _on_meta(thing):
    return torch.empty_like(thing, device=META) if isinstance(thing, torch.Tensor) else thing


def _name(module) -> str:
    return type(module).__name__
