"""Tensors as bytes: which a message can carry, what their bytes are, where they may land."""

import re

import pytest
import torch

from course.comm.tensors import (
    CODES,
    DTYPES,
    as_bytes,
    describe,
    host,
    lands_directly,
    required,
    writable,
)


def grid(dtype=torch.float32):
    """[3, 4], all different (and of both kinds where there are but two)."""
    return torch.arange(12).reshape(3, 4).to(dtype)


def complex_grid():
    return torch.complex(grid(), grid() + 0.5)


def test_a_tensor_in_words():
    assert describe(torch.float32, torch.Size([3, 4])) == "float32 [3, 4]"
    assert describe(torch.bool, ()) == "bool []"


def test_a_dtype_has_the_number_that_it_always_had():
    """Envelopes carry it: ranks of one run must agree, and a number has to fit into a byte."""
    assert [DTYPES[code] for code in (0, 5, 8, 11)] == [
        torch.uint8, torch.bool, torch.float32, torch.complex128
    ]  # fmt: skip
    assert [CODES[dtype] for dtype in DTYPES] == list(range(12))


NOT_SENT = {
    "must be a tensor, not list [1.0, 2.0]": [1.0, 2.0],
    "must be a tensor, not NoneType None": None,
    "must be a tensor, not str '" + 39 * "x": 100 * "x",  # not the whole of it
    "must be a dense tensor, not torch.sparse_coo": torch.eye(2).to_sparse(),
    "has dtype torch.float8_e5m2, which no message carries": torch.ones(2).to(torch.float8_e5m2),
    "has dtype torch.uint16, which no message carries": torch.ones(2).to(torch.uint16),
}


@pytest.mark.parametrize("sentence", NOT_SENT)
def test_what_no_message_carries_is_refused(sentence):
    with pytest.raises(ValueError) as told:
        required(NOT_SENT[sentence], "what is sent", 2)
    assert str(told.value) == f"rank 2: what is sent {sentence}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_the_list_is_carried_as_it_is(dtype):
    x = grid(dtype)
    assert required(x, "what is sent", 0) is x
    known = x.view(torch.int16) if dtype == torch.bfloat16 else x  # numpy has no such thing
    assert bytes(as_bytes(host(x))) == known.numpy().tobytes()


OVERLAPPING = {
    "expanded": lambda: torch.zeros(1, 4).expand(3, 4),
    "a number expanded": lambda: torch.zeros(()).expand(2),
    "sliding windows": lambda: torch.zeros(6).unfold(0, 3, 2),
    "diagonals": lambda: torch.zeros(9).as_strided((3, 3), (2, 1)),
}
APART = {
    "whole": grid,
    "a column": lambda: grid()[:, 1],
    "transposed": lambda: grid().T,
    "with steps": lambda: grid()[::2, ::3],
    "windows side by side": lambda: torch.zeros(6).unfold(0, 3, 3),
    "one element, expanded over nothing": lambda: torch.zeros(1).expand(1),
    "of no elements": lambda: torch.zeros(1, 0).expand(5, 0),
    "of no elements, with a step of 0": lambda: torch.zeros(1).expand(5)[:0],
    "a number": lambda: torch.zeros(()),
}


@pytest.mark.parametrize("make", OVERLAPPING)
def test_no_message_lands_where_elements_share_a_place(make):
    x = OVERLAPPING[make]()
    what = f"{describe(x.dtype, x.shape)} with strides {list(x.stride())}"
    rule = re.escape(f"cannot receive into an expanded tensor ({what}): several of its elements")
    with pytest.raises(ValueError, match=f"^rank 1: {rule} share one place$"):
        writable(x, 1)


@pytest.mark.parametrize("make", APART)
def test_a_message_lands_wherever_each_element_has_its_own_place(make):
    x = APART[make]()
    assert writable(x, 1) is x


def test_what_is_no_tensor_cannot_be_received_into_either():
    with pytest.raises(ValueError, match="^rank 3: the tensor to receive into must be a tensor"):
        writable([0.0], 3)


VIEWS = {
    "transposed": lambda: grid().T,
    "expanded": lambda: grid()[:, :1].expand(3, 4),
    "conjugate": lambda: complex_grid().conj(),
    "negative": lambda: complex_grid().conj().imag,
    "tracked": lambda: torch.nn.Parameter(grid()) * 2,
    "of no elements": lambda: grid()[:, 2:2],
    "a lone element": lambda: grid()[1:2, 2],
}


@pytest.mark.parametrize("make", VIEWS)
def test_the_elements_of_any_view_are_its_values_in_order(make):
    x = VIEWS[make]()
    flat = host(x)
    assert flat.shape == (x.numel(),) and flat.is_contiguous() and not flat.requires_grad
    assert not flat.is_conj() and not flat.is_neg()
    assert bytes(as_bytes(flat)) == x.detach().resolve_conj().resolve_neg().numpy().tobytes()


def test_what_is_in_one_piece_is_not_copied():
    x = grid()
    assert host(x).data_ptr() == x.data_ptr()
    as_bytes(host(x))[4:8] = torch.tensor([99.0]).numpy().tobytes()
    assert x[0, 1] == 99


def test_the_bytes_of_a_lone_element_whatever_its_stride():
    """numpy and torch call it contiguous with any stride; a view in another dtype does not."""
    lone = grid()[:1, 2].as_strided((1,), (7,), 2)
    assert bytes(as_bytes(lone)) == torch.tensor([2.0]).numpy().tobytes()


def test_the_bytes_of_nothing_can_be_written_as_nothing():
    """numpy's are read-only: a receive into nothing failed."""
    nothing = as_bytes(torch.empty(0))
    assert len(nothing) == 0 and not nothing.readonly


def test_bytes_land_directly_only_where_they_would_mean_what_was_sent():
    assert lands_directly(grid()) and lands_directly(grid()[1]) and lands_directly(complex_grid())
    for view in (grid().T, grid()[:, 1], complex_grid().conj(), complex_grid().conj().imag):
        assert not lands_directly(view)
    assert not lands_directly(torch.empty(3, device="meta"))
