"""An ordinary network cut by a plan: which of its layers become what."""

import fnmatch

from course.parallel.flat_parameters import broadcast_module
from course.parallel.tensor.cut import CutLayer


def tensor_parallel(module, comm, plan: dict):
    """`module` with the layers that `plan` names replaced by cut ones, in place; returns it.

        tensor_parallel(net, comm, {"blocks.*.up": ColumnLinear, "blocks.*.down": RowLinear})

    plan {name, with * for any part between dots: make}: make(comm, layer) takes its place.  All
    ranks get rank 0's parameters first; frozen ones stay frozen, and tied ones tied.
    Cost: a broadcast of the module.  Raises ValueError for a name that no layer has.
    """
    broadcast_module(comm, module)
    made, parts = {}, {}
    for pattern, make in plan.items():
        for name in _named(module, pattern, comm.rank):
            old = module.get_submodule(name)
            if old not in made:
                made[old] = make(comm, old)
                _tie(parts, old, made[old], name, comm.rank)
            module.set_submodule(name, made[old])
    return module


def _named(module, pattern, rank) -> list:
    """The names of all layers that a pattern has."""
    known = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    wanted = pattern.split(".")
    found = [name for name in known if len(name.split(".")) == len(wanted)
             and all(map(fnmatch.fnmatchcase, name.split("."), wanted))]  # fmt: skip
    if not found:
        raise ValueError(f"rank {rank}: no layer is named {pattern!r}, of {', '.join(known)}")
    return found


def _tie(parts, old, new, name, rank):
    """What was one parameter in several layers is one again: `parts` {whole one: (its part, its
    Cut, the layer's name)}.  Raises ValueError where they are cut in two ways."""
    wholes = dict(old.named_parameters())
    for key, part in list(new.named_parameters()):
        owner, _, last = key.rpartition(".")
        layer = new.get_submodule(owner)
        if key in wholes and isinstance(layer, CutLayer):
            cut = layer.cut.get(last)
            first, other, where = parts.setdefault(wholes[key], (part, cut, name))
            if other != cut:
                raise ValueError(f"rank {rank}: {where} and {name} share a parameter, and would "
                                 f"cut it in two ways: {other} and {cut}")  # fmt: skip
            setattr(layer, last, first)
