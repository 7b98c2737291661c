"""State dicts of whole parameters, as the ordinary module has them: saved on p ranks, loaded on any
number."""

from course.collectives import all_gather
from course.parallel.tensor.cut import CutLayer, lengths


def whole_state_dict(module) -> dict:
    """`module.state_dict()` with whole parameters in place of parts, on every rank.

    Collective.  Cost: an all-gather of each cut parameter.
    """
    state = module.state_dict()
    for key, layer, cut in _cut_entries(module):
        shape = [*state[key].shape]
        parts = []
        for length in lengths(cut.cuts):
            shape[cut.axis] = cut.blocks * length
            parts.append(state[key].new_empty(shape))
        all_gather(layer.comm, parts, state[key].contiguous())
        state[key] = cut.whole(parts)
    return state


def load_whole_state_dict(module, state: dict, strict: bool = True):
    """`module.load_state_dict` of a state dict with whole parameters, of which each rank takes its
    parts.  Nothing is sent.  Raises ValueError for a parameter of another length."""
    mine = dict(state)
    for key, layer, cut in _cut_entries(module):
        if key in mine:
            length, shape = cut.blocks * cut.cuts[-1], list(mine[key].shape)
            if len(shape) <= cut.axis or shape[cut.axis] != length:
                raise ValueError(f"rank {layer.comm.rank}: {key} is whole with {length} along axis "
                                 f"{cut.axis}: not {shape}")  # fmt: skip
            mine[key] = cut.part(mine[key], layer.comm.rank)
    return module.load_state_dict(mine, strict=strict)


def _cut_entries(module):
    """(key in the state dict, layer, cut) of every cut parameter."""
    for name, layer in module.named_modules(remove_duplicate=False):
        if isinstance(layer, CutLayer):
            prefix = f"{name}." if name else ""
            yield from ((prefix + key, layer, cut) for key, cut in layer.cut.items())
