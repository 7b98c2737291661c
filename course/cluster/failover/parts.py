"""What of a training has to be saved so that it goes on as if nothing had been.

A *part* says what all ranks have alike (`shared`, of which rank 0's is written) and what each has
for itself (`own`), and takes both back: on as many ranks each its own, on others what the part's
rule makes of them.  `random_parts.py`, `parallel_parts.py` have those that are not here.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from course.parallel.data import DataParallel
from course.parallel.sharded import Sharded
from course.parallel.tensor.cut import CutLayer


class Part(Protocol):
    """Of a training; `shared` and `own` are called on all ranks at once, and give tensors, numbers
    and texts in dictionaries, lists and tuples; None if there is nothing."""

    def describe(self) -> list[str]:
        """Lines that another training's part would not have."""
        ...

    def shared(self): ...

    def own(self): ...

    def load(self, shared, owns: Sequence, rank: int, size: int):
        """Go on from these: as `rank` of `size`, if ranks 0 to len(owns) - 1 have saved."""
        ...


class Owns:
    """What every rank has saved of a part, read when it is asked for."""

    def __init__(self, read, name, ranks):
        self.read, self.name, self.ranks = read, name, ranks

    def __len__(self):
        return self.ranks

    def __getitem__(self, rank):
        if not 0 <= rank < self.ranks:
            raise IndexError(rank)
        return self.read(rank)[self.name]


class Alike:
    """What has a `state_dict`, the same on all ranks: an optimiser, a schedule of rates.  It
    is written once, whatever the number of ranks."""

    def __init__(self, thing):
        self.thing = thing

    def describe(self):
        return described(self.thing)

    def shared(self):
        return self.thing.state_dict()

    def own(self):
        return None

    def load(self, shared, owns, rank, size):
        self.thing.load_state_dict(shared)


class Each:
    """What has a `state_dict` of its own on every rank: a stage, a part of a layer.

    It can be loaded by as many ranks only, else ValueError: nobody knows how it is cut.
    """

    def __init__(self, thing):
        self.thing = thing

    def describe(self):
        return described(self.thing)

    def shared(self):
        return None

    def own(self):
        return self.thing.state_dict()

    def load(self, shared, owns, rank, size):
        if len(owns) != size:
            name = type(self.thing).__name__
            raise ValueError(
                f"rank {rank}: {name} was saved in {len(owns)} parts, and there are {size} ranks"
            )
        self.thing.load_state_dict(owns[rank])


class Model:
    """A module whose parameters are alike on all ranks and whose buffers are each rank's own, as
    DataParallel has them; in which order that fills its buckets is saved too, since sums of three
    ranks and more are rounded by it.

    Other ranks get the mean of all ranks' floating-point buffers.  Raises ValueError for a net that
    is cut over ranks, and RuntimeError in between backward passes of one step, whose gradients are
    not saved.
    """

    def __init__(self, net):
        self.net, self.module = net, net.module if isinstance(net, DataParallel) else net
        if isinstance(net, Sharded):
            raise ValueError("a Sharded net is no Model: save Shards(net, optimizer)")
        for name, layer in self.module.named_modules():
            if isinstance(layer, CutLayer):
                raise ValueError(f"{name or 'the net'} is cut over ranks, and Model saves rank 0's "
                                 "parameters for all: save Each(net)")  # fmt: skip

    def describe(self):
        return described_tensors(self.module)

    def shared(self):
        reducer = getattr(self.net, "reducer", None)
        state = {"parameters": dict(self.module.named_parameters())}
        if reducer is not None:
            if any(backward.kept for backward in reducer.unsent):
                raise RuntimeError(
                    f"rank {self.net.comm.rank}: gradients that were gathered within no_sync are "
                    "not saved: save after the optimiser's step"
                )
            state["order"] = [reducer.layout.names[p] for p in reducer.layout.bucket_of]
        return state

    def own(self):
        return own_buffers(self.module)

    def load(self, shared, owns, rank, size):
        own, parameters = dict(self.module.named_parameters()), shared["parameters"]
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(parameters[name])
        self._cut_buckets(own, shared.get("order"))
        load_buffers(self.module, owns, rank, size)

    def _cut_buckets(self, parameters, order):
        """The buckets that there were, if the same parameters are trained."""
        reducer = getattr(self.net, "reducer", None)
        if order and reducer is not None:
            layout = reducer.layout
            if set(order) == {layout.names[p] for p in layout.bucket_of}:
                layout.cut([parameters[name] for name in order])
                layout.ordered = True


def own_buffers(module) -> dict:
    """The buffers of `module`, those that its state_dict leaves out too, and its extra states."""
    extra = {name: part.get_extra_state() for name, part in module.named_modules()
             if type(part).get_extra_state is not nn.Module.get_extra_state}  # fmt: skip
    return {"buffers": dict(module.named_buffers()), "extra": extra}


def load_buffers(module, owns, rank, size):
    """Take back what `own_buffers` gave: this rank's own, or, if the number of ranks is another,
    the mean of all where that is a number's, and else that of one of them."""
    mine = owns[rank % len(owns)]
    for name, buffer in module.named_buffers():
        if len(owns) != size and buffer.is_floating_point():
            told = torch.stack([own["buffers"][name] for own in owns])
            buffer.copy_(torch.where((told == told[0]).all(0), told[0], told.mean(0)))
        else:
            buffer.copy_(mine["buffers"][name])
    for name, state in mine["extra"].items():
        module.get_submodule(name).set_extra_state(state)


def described_tensors(module) -> list[str]:
    """A line for each parameter and buffer of a module."""
    kinds = ("", module.named_parameters()), ("buffer ", module.named_buffers())
    return [f"{kind}{name} {str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
            for kind, named in kinds for name, x in named]  # fmt: skip


def described(thing) -> list[str]:
    """A thing by what it is: an optimiser with the numbers of its groups' parameters, a module with
    its tensors."""
    groups = getattr(thing, "param_groups", None)
    told = f" of groups of {[len(group['params']) for group in groups]}" if groups else ""
    tensors = described_tensors(thing) if isinstance(thing, nn.Module) else []
    return [f"{type(thing).__name__}{told}", *tensors]
