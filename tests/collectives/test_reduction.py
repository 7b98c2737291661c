import pytest
import torch

from course.collectives.reduction import called, in_one_piece, reduction
from tests.collectives.guarded import LAYOUTS, Guarded
from tests.collectives.serial import MEANINGFUL, reduced, same, values

OPS = ("sum", "mean", "prod", "min", "max")


def combined(op, tensors):
    """What ranks do with their tensors, one after another."""
    how, parts = reduction(op, tensors[0].dtype), [x.clone() for x in tensors]
    for part in parts:
        how.before(part, len(parts))
    for part in parts[1:]:
        how.combine(parts[0], part)
    how.after(parts[0], len(parts))
    return parts[0]


@pytest.mark.parametrize(("dtype", "op"), [(d, op) for d, ops in MEANINGFUL.items() for op in ops])
def test_parts_become_one(dtype, op):
    given = [values((50,), dtype, rank) for rank in range(5)]
    assert same(combined(op, given), reduced(given, op), op)


@pytest.mark.parametrize("dtype", MEANINGFUL)
@pytest.mark.parametrize("op", OPS)
def test_an_op_without_meaning_is_refused(dtype, op):
    if op in MEANINGFUL[dtype]:
        reduction(op, dtype)
    else:
        name = str(dtype).removeprefix("torch.")
        with pytest.raises(ValueError, match=f"^no {op} of {name}: "):
            reduction(op, dtype)


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
        reduction(op, dtype)


@pytest.mark.parametrize("op", ["average", "", None, 3])
def test_an_unknown_op_is_refused(op):
    with pytest.raises(ValueError, match=f"op must be sum, mean, prod, min, max or a .* {op!r}$"):
        reduction(op, torch.float32)


def test_a_function_of_two_tensors_is_an_op():
    given = [torch.tensor([12, 18, 7]), torch.tensor([8, 27, 21]), torch.tensor([20, 45, 14])]
    assert combined(torch.gcd, given).tolist() == [4, 9, 7]


def test_not_a_number_wins():
    nan = torch.tensor([torch.nan, 1.0])
    for op in OPS:
        assert combined(op, [torch.ones(2), nan]).isnan().tolist() == [True, False], op


def test_an_op_is_called_by_its_name():
    assert called("sum") == "sum"
    assert called(torch.gcd) == "gcd"
    assert called(torch.nn.ReLU()) == "ReLU"


def test_functions_without_a_name_are_told_apart_by_their_lines():
    add = lambda a, b: a + b  # noqa: E731
    multiply = lambda a, b: a * b  # noqa: E731
    first = add.__code__.co_firstlineno
    assert called(add) == f"<lambda> of line {first}"
    assert called(multiply) == f"<lambda> of line {first + 1}"


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
