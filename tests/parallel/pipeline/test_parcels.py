"""Structures come out of a parcel as they went in."""

import pytest
import torch

from course.parallel.pipeline.parcels import joined, mapped, pack, room, tensors_of, unpack

X, N = torch.ones(2, 3, requires_grad=True), torch.arange(4)
THINGS = [X, (X, N), [X, (N,), []], {"a": X, 3: {"b": None}}, None, "text", (1, 2.5, True), ()]


@pytest.mark.parametrize("thing", THINGS, ids=str)
def test_a_parcel_holds_a_structure(thing):
    parcel = pack(thing, "it")
    again = unpack(parcel.text, parcel.tensors)
    assert str(again) == str(mapped(torch.Tensor.detach, thing))
    assert [x.shape for x in room(parcel.text, "meta")] == [x.shape for x in tensors_of(thing)]
    assert parcel.differentiable == [x.requires_grad for x in tensors_of(thing)]
    assert not any(x.requires_grad for x in parcel.tensors)


def test_without_gradients_none_is_wanted():
    with torch.no_grad():
        assert pack((X, N), "it").differentiable == [False, False]


@pytest.mark.parametrize(
    "thing",
    [{1}, object(), torch.ones(1, dtype=torch.float8_e5m2), {(0, 1): X}, torch.eye(2).to_sparse()],
    ids=["set", "object", "float8", "key", "sparse"],
)  # fmt: skip
def test_what_no_parcel_holds_is_said(thing):
    with pytest.raises(ValueError, match="(?s)stage 1 gives .*: stages give tensors, numbers"):
        pack([thing], "stage 1")


def test_the_structures_of_micro_batches_are_joined():
    each = [(torch.full((n, 2), n), {"mean": torch.tensor(n)}, n) for n in (1, 0, 2)]
    rows, means, numbers = joined(each)
    assert rows[:, 0].tolist() == [1, 2, 2]
    assert means["mean"].tolist() == list(numbers) == [1, 0, 2]
