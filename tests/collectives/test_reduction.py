import functools
import os
import subprocess
import sys

import pytest
import torch

from course.collectives.reduction import Reduction, in_one_piece, op_name
from tests.collectives.guarded import LAYOUTS, Guarded
from tests.collectives.serial import MEANINGFUL, reduced, same, values

OPS = ("sum", "mean", "prod", "min", "max")


def combined(op, tensors):
    """What ranks do with their tensors, one after another."""
    reduction, parts = Reduction.of(op, tensors[0].dtype), [x.clone() for x in tensors]
    for part in parts:
        reduction.before(part, len(parts))
    for part in parts[1:]:
        reduction.combine(parts[0], part)
    reduction.after(parts[0], len(parts))
    return parts[0]


@pytest.mark.parametrize(("dtype", "op"), [(d, op) for d, ops in MEANINGFUL.items() for op in ops])
def test_parts_become_one(dtype, op):
    given = [values((50,), dtype, rank) for rank in range(5)]
    assert same(combined(op, given), reduced(given, op), op)


@pytest.mark.parametrize("dtype", MEANINGFUL)
@pytest.mark.parametrize("op", OPS)
def test_an_op_without_meaning_is_refused(dtype, op):
    if op in MEANINGFUL[dtype]:
        Reduction.of(op, dtype)
    else:
        name = str(dtype).removeprefix("torch.")
        with pytest.raises(ValueError, match=f"^no {op} of {name}: "):
            Reduction.of(op, dtype)


@pytest.mark.parametrize(
    ("op", "dtype", "reason"),
    [
        ("max", torch.complex64, "complex numbers have no order"),
        ("mean", torch.uint8, "it would have to be rounded"),
        ("sum", torch.bool, "max says whether any is true, min whether all are"),
    ],
)
def test_the_refusal_says_why(op, dtype, reason):
    with pytest.raises(ValueError, match=reason):
        Reduction.of(op, dtype)


@pytest.mark.parametrize("op", ["average", "", None, 3])
def test_an_unknown_op_is_refused(op):
    with pytest.raises(ValueError, match=f"op must be sum, mean, prod, min, max or a .* {op!r}$"):
        Reduction.of(op, torch.float32)


def test_a_function_of_two_tensors_is_an_op():
    given = [torch.tensor([12, 18, 7]), torch.tensor([8, 27, 21]), torch.tensor([20, 45, 14])]
    assert combined(torch.gcd, given).tolist() == [4, 9, 7]


def test_not_a_number_wins():
    nan = torch.tensor([torch.nan, 1.0])
    for op in OPS:
        assert combined(op, [torch.ones(2), nan]).isnan().tolist() == [True, False], op


def test_an_op_is_called_by_its_name():
    assert op_name("sum") == "sum"
    assert op_name(torch.gcd) == "gcd"
    assert op_name(torch.nn.ReLU()) == "ReLU"


def test_functions_without_a_name_are_told_apart_by_their_lines():
    add = lambda a, b: a + b  # noqa: E731
    assert op_name(add).startswith(f"<lambda> of line {add.__code__.co_firstlineno}, code ")


def combine_by(number, inner=torch.add):
    def op(a, b, weight=1):
        return number * weight * inner(a, b)

    return op


def test_functions_of_one_name_are_told_apart_by_their_code_and_what_they_were_made_with():
    def op(a, b):
        return a * b

    halved = combine_by(2)
    halved.__defaults__ = (0.5,)
    ops = [op, combine_by(2), combine_by(2.5), combine_by(2, torch.sub), combine_by(2, op), halved,
           functools.partial(op), functools.partial(op, weight=2), Bound().op]  # fmt: skip
    assert len({op_name(each) for each in ops}) == len(ops)
    assert op_name(combine_by(2)) == op_name(combine_by(2))


class Bound:
    def op(self, a, b):
        return a.fmax(b)


SAME_CODE = """
import torch
from course.collectives.reduction import op_name
def op(a, b): return a if str(a.shape) in {"one", "two", "three"} else torch.hypot(a, b)
print(op_name(op))
"""


def test_a_function_has_the_same_name_in_every_process():
    """Though each shuffles sets of texts in its own way."""
    said = {
        subprocess.run(
            [sys.executable, "-c", SAME_CODE], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(2)
    }  # fmt: skip
    assert len(said) == 1 and said.pop().startswith("op, code ")


def larger_norm(a, b):
    return a if a.norm() >= b.norm() else b


def product_of_matrices(a, b):
    return (a.view(2, 2) @ b.view(2, 2)).flatten()


def halves(a, b):
    return (a + b) / 2


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        (larger_norm, r"^op larger_norm, code \w+ must be elementwise: of \[3.*it makes \[1"),
        (torch.dot, "^op dot must be elementwise, and of int64 .4. it raises RuntimeError: "),
        (product_of_matrices, "must be elementwise, and of int64 .* it raises RuntimeError: shape"),
        (lambda a: a, "must be elementwise, and of .* it raises TypeError: "),
        (lambda a, b: 7, "must be elementwise, and of .* it raises TypeError: expected Tensor"),
        (halves, "^op halves, code .* makes float32 of int64, which loses a part"),
    ],
)  # fmt: skip
def test_a_function_that_is_not_elementwise_is_refused(op, sentence):
    """A ring gives it other pieces than a tree: the larger of two norms was nobody's tensor."""
    with pytest.raises(ValueError, match=sentence):
        Reduction.of(op, torch.int64 if op is not larger_norm else torch.float32)


@pytest.mark.parametrize("dtype", MEANINGFUL)
def test_elementwise_functions_of_any_dtype_pass(dtype):
    ops = [lambda a, b: torch.where(a == b, a, b), lambda a, b: a + b if dtype != torch.bool else b]
    ops += [torch.logical_or] if dtype == torch.bool or dtype.is_floating_point else []
    ops += [torch.hypot, torch.fmin] if dtype.is_floating_point else []
    for op in ops:
        assert (
            Reduction.of(op, dtype).combine(torch.ones(2, dtype=dtype), torch.ones(2)) is not None
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (3, 4), (2, 0), (2, 3, 4)])
def test_in_one_piece_is_flat_and_dense_and_what_is_done_to_it_is_done_to_the_tensor(layout, shape):
    given = values(shape, torch.complex64, rank=0)
    guarded = Guarded(shape, torch.complex64, layout)
    guarded.view.copy_(given)
    with in_one_piece(guarded.view, 0) as flat:
        assert flat.is_contiguous()
        assert torch.equal(flat, given.reshape(-1))
        flat += 2
    assert torch.equal(guarded.view, given + 2)
    assert guarded.intact


def test_in_one_piece_copies_only_what_is_not():
    x = torch.zeros(4, 6)
    with in_one_piece(x[1:3], 0) as flat:
        assert flat.data_ptr() == x[1].data_ptr()
    with in_one_piece(x[:, 1], 0) as flat:
        assert flat.data_ptr() != x[:, 1].data_ptr()
