"""How two contributions become one: sum, mean, prod, min, max, or a function of two tensors."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import torch

from course.comm.tensors import writable

IN_PLACE = {
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,
    "prod": torch.Tensor.mul_,
    "min": lambda mine, theirs: torch.minimum(mine, theirs, out=mine),
    "max": lambda mine, theirs: torch.maximum(mine, theirs, out=mine),
}


class Reduction(NamedTuple):
    """`combine(mine, theirs)` changes mine; `before` and `after` act on one part, in place."""

    combine: Callable
    before: Callable = lambda part, p: part
    after: Callable = lambda part, p: part


def reduction(op, dtype) -> Reduction:
    """The reduction that `op` names: a string, or an associative and commutative function of two
    tensors.  A mean of float16 divides first, since a sum of large halves would overflow.

    Raises ValueError for an unknown name, or a dtype for which it has no meaning.
    """
    if callable(op):
        return Reduction(lambda mine, theirs: mine.copy_(op(mine, theirs)))
    if op not in IN_PLACE:
        raise ValueError(f"op must be {', '.join(IN_PLACE)} or a function, not {op!r}")
    refused = _refusal(op, dtype)
    if refused:
        raise ValueError(f"no {op} of {str(dtype).removeprefix('torch.')}: {refused}")
    if op != "mean":
        return Reduction(IN_PLACE[op])
    if dtype == torch.float16:
        return Reduction(IN_PLACE[op], before=torch.Tensor.div_)
    return Reduction(IN_PLACE[op], after=torch.Tensor.div_)


def called(op) -> str:
    """What an op is called in a call's name; a function without a name by the line it is in."""
    if isinstance(op, str):
        return op
    name = getattr(op, "__name__", type(op).__name__)
    return f"{name} of line {op.__code__.co_firstlineno}" if name == "<lambda>" else name


def _refusal(op, dtype) -> str:
    if op in ("min", "max") and dtype.is_complex:
        return "complex numbers have no order"
    if op in ("sum", "mean", "prod") and dtype == torch.bool:
        return "max says whether any is true, min whether all are"
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        return "it would have to be rounded"
    return ""


@contextlib.contextmanager
def in_one_piece(x, rank):
    """The elements of `x` as one flat contiguous tensor; what is done to them is done to `x`."""
    writable(x, rank)
    x = x.detach()
    flat = x.contiguous().view(-1)
    yield flat
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
