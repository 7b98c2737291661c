"""An ordinary network cut by a plan: which of its layers become what."""

import fnmatch

from course.parallel.flat_parameters import broadcast_module
from course.parallel.tensor.cut import CutLayer


def tensor_parallel(module, comm, plan: dict):
    """`module` with the layers that `plan` names replaced by cut ones, in place; returns it.

    plan {name, with * for any: make}: make(comm, layer) is the layer that takes its place, such as
    ColumnLinear.  All ranks get rank 0's parameters first, frozen ones stay frozen, and tied ones
    tied.  Cost: a broadcast of the module.  Raises ValueError for a name that no layer has.

        tensor_parallel(net, comm, {"*.mlp.up": ColumnLinear, "*.mlp.down": RowLinear})
    """
    broadcast_module(comm, module)
    owners = {}
    for pattern, make in plan.items():
        names = [name for name, _ in module.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            known = ", ".join(name for name, _ in module.named_modules() if name)
            raise ValueError(f"rank {comm.rank}: no layer is named {pattern!r}, of {known}")
        for name in names:
            old = module.get_submodule(name)
            new = make(comm, old)
            _tie(owners, old, new, name, comm.rank)
            module.set_submodule(name, new)
    return module


def _tie(owners, old, new, name, rank):
    """What was one parameter in several layers is one again.

    `owners` {whole parameter: (its part, its Cut, the layer's name)}.  Raises ValueError where they
    are cut otherwise.
    """
    wholes = dict(old.named_parameters())
    for prefix, layer in new.named_modules():
        for key, part in list(layer.named_parameters(recurse=False)):
            whole = wholes.get(f"{prefix}.{key}" if prefix else key)
            cut = layer.cut.get(key) if isinstance(layer, CutLayer) else None
            first, its_cut, owner = owners.setdefault(whole, (part, cut, name))
            if whole is None or first is part:
                continue
            if its_cut != cut:
                raise ValueError(f"rank {rank}: {owner} and {name} share a parameter, and would "
                                 f"cut it in two ways: {its_cut} and {cut}")  # fmt: skip
            setattr(layer, key, first)
