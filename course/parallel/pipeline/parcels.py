"""What a stage gives as tensors and a text: structures of tuples, lists and dictionaries whose
leaves are tensors, numbers, texts and None."""

import json
from typing import NamedTuple

import torch

from course.comm.tensors import CODES, DTYPES

PLAIN = (int, float, str, type(None))


class Parcel(NamedTuple):
    """`text` says how the `tensors` were put together, and of each its dtype, shape, and whether
    its gradient is wanted."""

    text: str
    tensors: list

    @property
    def differentiable(self) -> list[bool]:
        """Of each tensor, whether its gradient is wanted."""
        return [wanted for _, _, wanted in json.loads(self.text)[1]]


def pack(value, who: str) -> Parcel:
    """The parcel of what `who` gives, its tensors cut off from their graph.

    Raises ValueError for a thing that no message carries.
    """
    skeleton, tensors = _skeleton(value, who), tensors_of(value)
    about = [[CODES[x.dtype], list(x.shape), x.requires_grad and torch.is_grad_enabled()]
             for x in tensors]  # fmt: skip
    return Parcel(json.dumps([skeleton, about]), [x.detach() for x in tensors])


def unpack(text, tensors):
    """The structure again, with these tensors."""
    return _rebuilt(json.loads(text)[0], iter(tensors))


def room(text, device) -> list:
    """Tensors for a parcel to land in."""
    return [torch.empty(shape, dtype=DTYPES[code], device=device)
            for code, shape, _ in json.loads(text)[1]]  # fmt: skip


def tensors_of(value) -> list:
    """The tensors of a structure, in the order of its parcel."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [x for part in parts for x in tensors_of(part)] if _holds_others(value) else []


def mapped(fn, value):
    """The structure with fn(x) for each of its tensors."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, dict):
        return {key: mapped(fn, part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(mapped(fn, part) for part in value)
    return value


def joined(values):
    """One structure of those of all micro-batches: rows one below the other, scalars in a row."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(values) if first.dim() else torch.stack(values)
    if isinstance(first, dict):
        return {key: joined([value[key] for value in values]) for key in first}
    return tuple(map(joined, zip(*values))) if _holds_others(first) else values


def _holds_others(value) -> bool:
    return isinstance(value, tuple | list | dict)


def _skeleton(value, who):
    """The structure as JSON has it: {"x": 0} for a tensor, {"t": ...}, {"d": ...} for tuples and
    dicts."""
    if isinstance(value, torch.Tensor) and value.dtype in CODES and value.layout is torch.strided:
        return {"x": 0}
    if isinstance(value, dict) and all(isinstance(key, PLAIN) for key in value):
        return {"d": [[key, _skeleton(part, who)] for key, part in value.items()]}
    if isinstance(value, tuple | list):
        parts = [_skeleton(part, who) for part in value]
        return {"t": parts} if isinstance(value, tuple) else parts
    if isinstance(value, PLAIN):
        return value
    raise ValueError(f"{who} gives {type(value).__name__} {value!r:.40}: stages give tensors, "
                     "numbers, texts, None, and tuples, lists and dicts of them, whose keys are "
                     "numbers and texts")  # fmt: skip


def _rebuilt(skeleton, tensors):
    if isinstance(skeleton, list):
        return [_rebuilt(part, tensors) for part in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, inside),) = skeleton.items()
    if kind == "x":
        return next(tensors)
    if kind == "d":
        return {key: _rebuilt(part, tensors) for key, part in inside}
    return tuple(_rebuilt(part, tensors) for part in inside)
