"""A network as a graph of operations, as data: what each takes, does, weighs and gives.

graph = traced(module, example)      graph.operations {name: Operation}, in the order of forward
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves, tree_map

META = torch.device("meta")


@dataclass(frozen=True)
class Value:
    """What the call of this name gives, or the input of this name."""

    name: str


@dataclass(frozen=True)
class Attribute:
    """A tensor that the module has under this path."""

    path: str


class Call(NamedTuple):
    """One call of a forward: of a submodule, a function or a method, by torch.fx's `kind`."""

    name: str
    kind: str
    target: object
    args: tuple
    kwargs: dict

    def value(self, module, values):
        """Call it, of a `module` and of `values` {name: value} before it."""
        args, kwargs = filled((self.args, self.kwargs), module, values)
        if self.kind == "call_module":
            return module.get_submodule(self.target)(*args, **kwargs)
        if self.kind == "call_method":
            return getattr(args[0], self.target)(*args[1:], **kwargs)
        return self.target(*args, **kwargs)


@dataclass(frozen=True)
class Room:
    """What a tensor needs."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize

    def __str__(self):
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


class Kernel(NamedTuple):
    """What a device does for a call: flops, and bytes read and written."""

    name: str
    flops: float
    nbytes: int


class Operation(NamedTuple):
    """What one device does at a stretch: a call, and what only goes on with its answer.

    `takes`: the operations whose answers it needs; `weights` {name: bytes} that it reads; `gives`:
    its answer, with a Room for each tensor.
    """

    name: str
    calls: tuple
    kernels: tuple
    takes: tuple
    weights: dict
    gives: object

    @property
    def flops(self) -> float:
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def out_bytes(self) -> int:
        return sum(room.nbytes for room in rooms(self.gives))

    @property
    def answer(self) -> str:
        """The name of its last call, by which others know its answer."""
        return self.calls[-1].name

    def value(self, module, values):
        """Its answer, of `values` {answer or input: value} that hold what it takes."""
        own = dict(values)
        for call in self.calls:
            own[call.name] = call.value(module, own)
        return own[self.answer]


class Graph(NamedTuple):
    """`operations` {name: Operation} in an order in which one process could do them.

    `inputs` {name: what was given, with Rooms}; `output` is the module's answer with a Value
    wherever it has an operation's; `module` is a copy of the one that was traced.
    """

    module: torch.nn.Module
    operations: dict
    inputs: dict
    output: object

    def __repr__(self):
        return f"<graph of {len(self.operations)} operations, {self.flops:.3g} flop>"

    @property
    def flops(self) -> float:
        return sum(operation.flops for operation in self.operations.values())

    @property
    def takers(self) -> dict:
        """{name: the operations that take its answer}."""
        found = {name: [] for name in self.operations}
        for operation in self.operations.values():
            for source in operation.takes:
                found[source].append(operation.name)
        return found

    @property
    def answers(self) -> list:
        """The answers and inputs that the module's own answer is made of."""
        return list(dict.fromkeys(x.name for x in leaves(self.output) if isinstance(x, Value)))

    def groups(self) -> list:
        """Lists of names: operations that share a weight have to be on one device."""
        group_of, with_weight = {}, {}
        for name, operation in self.operations.items():
            group_of[name] = own = [name]
            for weight in operation.weights:
                other = group_of[with_weight.setdefault(weight, name)]
                if other is not own:
                    own = _joined(other, own, group_of)
        return list({id(group): group for group in group_of.values()}.values())

    def named_inputs(self, inputs) -> dict:
        """{name: tensor} of `inputs`.  Raises ValueError for other ones than were traced."""
        if len(inputs) != len(self.inputs):
            raise ValueError(f"the graph takes {len(self.inputs)} inputs, not {len(inputs)}")
        for (name, wanted), given in zip(self.inputs.items(), inputs):
            if (found := described(given)) != wanted:
                raise ValueError(f"the graph was traced with {name} of {_words(wanted)}, and it is "
                                 f"{_words(found)}")  # fmt: skip
        return dict(zip(self.inputs, inputs))


def filled(thing, module, values):
    """`thing` with all Values and Attributes in it replaced by what they stand for."""

    def fill(part):
        if isinstance(part, Value):
            return values[part.name]
        if part == META:  # that of the inputs, whatever it is
            return next(x for x in tree_leaves(values) if isinstance(x, torch.Tensor)).device
        return attribute(module, part.path) if isinstance(part, Attribute) else part

    return map_aggregate(thing, fill)


def attribute(module, path):
    """The tensor that a module has under this path."""
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def described(value):
    """A value of any structure, with a Room in place of each tensor."""
    return tree_map(lambda x: Room(x.shape, x.dtype) if isinstance(x, torch.Tensor) else x, value)


def leaves(thing) -> list:
    """What is in the tuples, lists, dicts and slices of `thing`."""
    found = []
    map_aggregate(thing, found.append)
    return found


def rooms(description) -> list:
    """All Rooms in what `described` gives."""
    return [x for x in tree_leaves(description) if isinstance(x, Room)]


def _words(description) -> str:
    return " and ".join(map(str, tree_leaves(description)))


def _joined(one, other, group_of):
    one.extend(other)
    for name in other:
        group_of[name] = one
    return one
