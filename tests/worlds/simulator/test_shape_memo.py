"""Shapes of the meta device known from before: always those that torch itself gives."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.worlds.simulator.shape_memo import ShapeMemo

aten = torch.ops.aten


class Counted(TorchDispatchMode):
    """Counts the operations that reach torch, but for making what is known."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not aten.empty_strided.default:
            self.calls.append(func)
        return func(*args, **(kwargs or {}))


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, device="meta", dtype=dtype)


def likeness(out):
    if isinstance(out, tuple):
        return tuple(map(likeness, out))
    return None if out is None else (out.shape, out.stride(), out.dtype, out.device)


def nothing(args, kwargs, out):
    """The work of an operation that is free."""


def twice(func, *args, **kwargs):
    """What torch gives, and what a memo gives at first and again; torch is not asked again."""
    memo = ShapeMemo()
    first, _ = memo.result(func, args, kwargs, nothing)
    with Counted() as counted:
        again, _ = memo.result(func, args, kwargs, nothing)
    assert not counted.calls
    assert again is not first
    return [likeness(each) for each in (func(*args, **kwargs), first, again)]


def test_results_are_those_of_torch():
    strided = meta(6, 4).mT
    x, images = meta(4, 6), meta(2, 3, 8, 8)
    for func, *args in (
        (aten.mul.Tensor, x, strided),
        (aten.clone.default, strided),
        (aten.cat.default, [x, x], 1),
        (aten.sum.dim_IntList, x, [0], True),
        (aten.add.Tensor, meta(3, dtype=torch.int64), meta(3, dtype=torch.float64)),
        (aten.convolution.default, images, meta(5, 3, 3, 3), None,
         [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (aten.convolution_backward.default, meta(2, 5, 8, 8), images, meta(5, 3, 3, 3), [0],
         [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, True]),
    ):  # fmt: skip
        right, *found = twice(func, *args)
        assert found == [right, right], func
    right, *found = twice(aten.sum.dim_IntList, x, [1], dtype=torch.float64)
    assert found == [right, right]


def test_what_looks_alike_is_kept_apart():
    memo, whole = ShapeMemo(), meta(3, dtype=torch.int64)
    for other in (1, 1.0, True):
        found = memo.result(aten.add.Tensor, (whole, other), {}, nothing)[0]
        assert found.dtype is aten.add.Tensor(whole, other).dtype
    assert memo.result(aten.sum.default, (whole,), {}, nothing)[0].dtype is torch.int64
    named = memo.result(aten.sum.default, (whole,), {"dtype": torch.float32}, nothing)[0]
    assert named.dtype is torch.float32
    assert memo.result(aten.clone.default, (meta(2, 3),), {}, nothing)[0].stride() == (3, 1)
    assert memo.result(aten.clone.default, (meta(3, 2).mT,), {}, nothing)[0].stride() == (1, 2)


def test_the_dtype_by_default_counts():
    memo, whole = ShapeMemo(), meta(3, dtype=torch.int64)
    assert memo.result(aten.div.Tensor, (whole, whole), {}, nothing)[0].dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert memo.result(aten.div.Tensor, (whole, whole), {}, nothing)[0].dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_values_are_never_remembered():
    memo = ShapeMemo()
    for value in (1.0, 2.0):
        x = torch.full((2,), value)
        assert memo.result(aten.mul.Tensor, (x, x), {}, nothing)[0].tolist() == [value**2] * 2
    for conj in (False, True):  # the same shape and stride, but a conjugate is resolved
        x = meta(2, dtype=torch.complex64)
        out = memo.result(aten.clone.default, (x.conj() if conj else x,), {}, nothing)[0]
        assert out.is_conj() is aten.clone.default(x.conj() if conj else x).is_conj()
    assert not memo.known


def test_work_is_found_once_for_the_same_shapes():
    memo, found = ShapeMemo(), []

    def work(args, kwargs, out):
        found.append(out.shape)
        return len(found)

    def asked(*args):
        return memo.result(aten.mm.default, args, {}, work)[1]

    x, wide = meta(3, 4), meta(4, 5)
    assert [asked(x, wide), asked(meta(3, 4), wide), asked(wide.mT, x.mT)] == [1, 1, 2]
    y = torch.zeros(4, 4)
    assert [asked(y, y), asked(y, y)] == [3, 4]
    assert found == [(3, 5), (5, 3), (4, 4), (4, 4)]


def test_vectors_side_by_side_are_as_long_as_all_and_torch_is_not_asked():
    memo, half = ShapeMemo(), torch.float16
    vectors = [meta(8)[::2], meta(0), meta(3)]
    with Counted() as counted:
        found, _ = memo.result(aten.cat.default, (vectors,), {}, nothing)
    assert not counted.calls
    assert likeness(found) == likeness(aten.cat.default(vectors))
    for args in (
        ([meta(3), meta(3, dtype=half)],), ([meta(3, dtype=half), meta(2)],), ([torch.ones(2)],),
        ([meta(2, 3), meta(4, 3)],), ([meta(3, 1), meta(3, 2)], 1), ([meta(3), meta(2)], -1),
    ):  # fmt: skip
        found, _ = memo.result(aten.cat.default, args, {}, nothing)
        assert likeness(found) == likeness(aten.cat.default(*args))
    with pytest.raises(IndexError, match="out of range"):
        memo.result(aten.cat.default, ([meta(3), meta(2)], 1), {}, nothing)
    with pytest.raises((RuntimeError, ValueError)):
        memo.result(aten.cat.default, ([],), {}, nothing)
