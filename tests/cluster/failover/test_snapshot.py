"""Copies that are of the moment, in memory that stays, of what can be read back."""

import io

import numpy
import pytest
import torch

from course.cluster.failover.snapshot import Snapshot, copying


def saved_and_loaded(state):
    torch.save(state, file := io.BytesIO())
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def test_a_copy_does_not_change_with_the_original():
    x, half = torch.arange(6.0, requires_grad=True), torch.ones(2, 3, dtype=torch.bfloat16).T
    state = {"x": x, 3: [half, (x[::2], "text")], "scalar": torch.tensor(2)}
    copy = Snapshot().of(state, "part")
    with torch.no_grad():
        x.zero_(), half.zero_()
    assert copy["x"].tolist() == [0, 1, 2, 3, 4, 5] and not copy["x"].requires_grad
    assert copy[3][0].dtype == torch.bfloat16 and copy[3][0].sum() == 6
    assert copy[3][1][0].tolist() == [0, 2, 4] and copy[3][1][1] == "text"
    assert type(copy[3][1]) is tuple and copy["scalar"].shape == ()


def test_memory_is_used_again_until_a_tensor_is_another():
    snapshot = Snapshot()
    first = snapshot.of({"x": torch.ones(3), "y": torch.ones(2)}, "a")
    again = snapshot.of({"x": torch.zeros(3), "y": torch.zeros(4)}, "a")
    assert first["x"] is again["x"] and again["x"].sum() == 0
    assert first["y"] is not again["y"] and again["y"].shape == (4,)
    assert snapshot.of({"x": torch.ones(3)}, "b")["x"] is not first["x"]


def test_what_it_takes_can_be_loaded_again():
    state = {
        "numbers": [1, 2**130, 0.5, True, None], "bytes": b"\xff", "dtype": torch.float16,
        "numpy": numpy.float64(0.25), "array": numpy.arange(3, dtype=numpy.uint32),
        "device": torch.device("cpu"), "sparse": torch.eye(2).to_sparse(),
        (1, "a"): 1j * torch.ones(1),
    }  # fmt: skip
    loaded = saved_and_loaded(Snapshot().of(state))
    assert loaded["numbers"] == state["numbers"] and loaded["numpy"] == 0.25
    assert loaded["array"].tolist() == [0, 1, 2] and loaded["array"].dtype == torch.uint32
    assert loaded["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]
    assert loaded[(1, "a")].item() == 1j


def test_one_thread_copies_and_all_are_there_again():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(KeyError), copying():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_arrays_may_lie_in_memory_as_they_like():
    fixed = numpy.frombuffer(b"abc", dtype=numpy.uint8)
    arrays = numpy.arange(3)[::-1], numpy.arange(3, dtype=">i4"), fixed
    loaded = saved_and_loaded(Snapshot().of(arrays))
    assert [x.tolist() for x in loaded] == [[2, 1, 0], [0, 1, 2], [97, 98, 99]]


@pytest.mark.parametrize("thing", [numpy.datetime64("2026-11-22"), numpy.longdouble(1),
                                   numpy.array(["text"]), numpy.array([None])])  # fmt: skip
def test_of_numpy_too(thing):
    """It would be written, and nobody could read it."""
    with pytest.raises(ValueError, match="tensors, numbers and texts, and rates, 0 is "):
        Snapshot().of([thing], "rates")


@pytest.mark.parametrize("thing", [{1, 2}, object(), print, 1j])
def test_what_could_not_be_loaded_is_refused_with_its_place(thing):
    rule = "a checkpoint holds tensors, numbers and texts"
    with pytest.raises(ValueError, match=f"{rule}, and rates, 0, last is a {type(thing).__name__}"):
        Snapshot().of([{"last": thing}], "rates")
