"""How many samples a forward has: as many as its tensors have rows."""

import torch


def count_samples(module, args, kwargs) -> int:
    """The rows of the tensors among a call's arguments; all that have axes have the same number.

    Raises ValueError where they do not, where there are none, or where `module` has a part to which
    the first axis is time.
    """
    rows = {len(x) for x in tensors_in((args, kwargs)) if x.dim()}
    if len(rows) != 1:
        told = f"tensors of {', '.join(map(str, sorted(rows)))} rows" if rows else "no tensor"
        raise ValueError(f"of how many samples is a call with {told}? say it by samples=")
    if any(getattr(part, "batch_first", True) is False for part in module.modules()):
        raise ValueError(
            f"are {rows.pop()} rows so many samples, or times? A part of the model has "
            "batch_first=False: say it by samples="
        )
    return rows.pop()


def tensors_in(value, seen=None):
    """All tensors in a tensor, or in lists, tuples, dictionaries and objects with such in them."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        yield value
    elif not callable(value) and id(value) not in seen:
        seen.add(id(value))
        for part in _parts(value):
            yield from tensors_in(part, seen)


def _parts(value):
    if isinstance(value, list | tuple):
        return value
    return (value if isinstance(value, dict) else getattr(value, "__dict__", {})).values()
