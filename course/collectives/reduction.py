"""How two contributions become one: sum, mean, prod, min, max, or a function of two tensors."""

import contextlib
import functools
import types
import zlib
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

PROBES = (3, 0, 1, 2), (1, 2, 4, 1)  # of a function: two tensors, neither of which is the larger


class Reduction(NamedTuple):
    """`combine(mine, theirs)` changes mine; `before` and `after` act on one part, in place."""

    combine: Callable
    before: Callable = lambda part, p: part
    after: Callable = lambda part, p: part

    @classmethod
    def of(cls, op, dtype) -> "Reduction":
        """The reduction that `op` names: a string, or a function of two tensors of one shape that
        is elementwise, associative and commutative: it gets pieces of what is reduced.

        A mean of float16 divides first, since a sum of large halves would overflow.
        Raises ValueError for an unknown name, a dtype for which it has no meaning, or a function
        that is not elementwise.
        """
        if callable(op):
            _check_elementwise(op, dtype)
            return cls(lambda mine, theirs: mine.copy_(op(mine, theirs)))
        if op not in IN_PLACE:
            raise ValueError(f"op must be {', '.join(IN_PLACE)} or a function, not {op!r}")
        refused = _refusal(op, dtype)
        if refused:
            raise ValueError(f"no {op} of {_short(dtype)}: {refused}")
        if op != "mean":
            return cls(IN_PLACE[op])
        if dtype == torch.float16:
            return cls(IN_PLACE[op], before=torch.Tensor.div_)
        return cls(IN_PLACE[op], after=torch.Tensor.div_)


def op_name(op) -> str:
    """What an op is called in a call's name: a function by its name and a mark of what it does."""
    if isinstance(op, str):
        return op
    name, code = getattr(op, "__name__", type(op).__name__), getattr(op, "__code__", None)
    if code is not None and name == "<lambda>":
        name = f"<lambda> of line {code.co_firstlineno}"
    if code is None and not isinstance(op, functools.partial):
        return name
    return f"{name}, code {zlib.crc32(repr(_contents(op)).encode()):08x}"


def _contents(value):
    """What makes a function do what it does, as far as it is the same text on all ranks: its code,
    and the numbers, texts and functions that it was made with."""
    if isinstance(value, functools.partial):
        return _contents((value.func, *value.args, *sorted(value.keywords.items())))
    if isinstance(value, types.MethodType):
        return _contents(value.__func__)
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return _contents((value.__code__, *cells, *(value.__defaults__ or ())))
    if isinstance(value, types.CodeType):
        return value.co_code, value.co_names, _contents(value.co_consts)
    if isinstance(value, tuple):
        return [_contents(each) for each in value]
    plain = isinstance(value, bool | int | float | complex | str | bytes | None)
    return value if plain else getattr(value, "__name__", type(value).__name__)


def _check_elementwise(op, dtype):
    """Raises ValueError unless `op` does with two tensors what it does with each pair of their
    elements: a ring gives it other pieces of them than a tree."""
    a, b = (torch.tensor(numbers, device="cpu").to(dtype) for numbers in PROBES)
    try:
        whole = op(a.clone(), b.clone())
        pieces = torch.cat([op(*pair) for pair in zip(a.clone().split(1), b.clone().split(1))])
        alike = whole.shape == a.shape and _close(whole, pieces)
    except Exception as error:
        raise ValueError(
            f"op {op_name(op)} must be elementwise, and of {_short(dtype)} [{len(a)}] it raises "
            f"{type(error).__name__}: {error}"
        ) from error
    if not alike:
        raise ValueError(
            f"op {op_name(op)} must be elementwise: of {a.tolist()} and {b.tolist()} it makes "
            f"{whole.tolist()}, of their elements {pieces.tolist()}"
        )
    if not torch.can_cast(whole.dtype, dtype):
        raise ValueError(
            f"op {op_name(op)} makes {_short(whole.dtype)} of {_short(dtype)}, which loses a part"
        )


def _close(a, b) -> bool:
    """Equal up to what vector instructions round differently."""
    wide = torch.complex128
    return torch.allclose(a.to(wide), b.to(wide), rtol=1e-2, equal_nan=True)


def _short(dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
