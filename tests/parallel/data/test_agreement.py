"""What ranks find out together: all raise the same sentence, or none raises."""

from types import SimpleNamespace

import pytest

from course.parallel.data.agreement import blame, require_weights
from course.parallel.data.backward import Backward
from course.worlds import run
from tests.worlds.simulator.clusters import switched


def said(act, *args):
    try:
        act(*args)
    except (RuntimeError, FloatingPointError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def backward_of(*rows):
    backward = Backward(sync=False)
    backward.rows = dict(enumerate(rows))
    return backward


def asked(comm, outside, uneven, passes):
    """`passes`, by rank: the rows of each forward of each backward that was gathered."""
    buckets = [SimpleNamespace(counts=[8.0, *c, 0.0]) for c in ((0.0, 0.0), (outside, uneven))]
    mine = [backward_of(*rows) for rows in passes[comm.rank]]
    return said(require_weights, comm, buckets, mine), comm.meter.sent_messages


def ask(outside=0.0, uneven=0.0, passes=([[4]], [[4]], [[4]])):
    return run(asked, 3, outside, uneven, passes, on=switched(3), checked=False)


def test_what_every_rank_knows_costs_nothing():
    assert ask() == [("nothing", 0)] * 3


def test_backwards_that_passed_no_forward_on_any_rank_are_means():
    assert ask(outside=3.0) == [("nothing", 0)] * 3


@pytest.mark.parametrize("outside", [1.0, 2.0])
def test_on_some_ranks_alone_they_are_refused(outside):
    sentence = (
        f"RuntimeError: the backward of {outside:.0f} of 3 ranks went through no forward of "
        "the wrapper, so what their gradients count is not known: call the wrapper on every "
        "rank, with samples=0 where there are none"
    )
    assert ask(outside=outside) == [(sentence, 0)] * 3


def test_uneven_passes_are_right_where_all_ranks_had_the_same():
    passes = [
        [[2, 4], [6], []]
    ] * 3  # one of 3 rows on average, one of 6; the last went through none
    assert [words for words, _ in ask(uneven=3.0, passes=passes)] == ["nothing"] * 3


def test_uneven_passes_that_differ_between_ranks_are_refused():
    passes = [[[2], [6]], [[2], [6]], [[2, 5], [6.0]]]
    sentence = (
        "RuntimeError: backwards within no_sync() had 2, 6 rows on rank 0 and 3.5, 6 on rank 2: "
        "their weights would need messages; take micro-batches of equal rows, or leave no_sync() "
        "out"
    )
    assert [words for words, _ in ask(uneven=1.0, passes=passes)] == [sentence] * 3


def blamed(comm, fine):
    """`fine`, by rank: whether its part of each of six parameters is finite."""
    names = {number: f"layer{number}" for number in range(6)}
    return said(blame, comm, names, dict(zip((1, 4, 5), fine[comm.rank])))


@pytest.mark.parametrize("fine, whose", [
    ([(True, True, True), (True, False, True)], "layer4 on rank 1"),
    ([(False, True, True), (True, True, False)], "layer1 on rank 0, layer5 on rank 1"),
    ([(False, False, False)] * 2, "layer1 on rank 0, layer4 on rank 0, layer5 on rank 0, "
                                  "layer1 on rank 1"),
    ([(True, True, True)] * 2, "the sum of layer1, which overflowed"),
])  # fmt: skip
def test_everyone_hears_whose_gradient_is_not_finite(fine, whose):
    sentence = f"FloatingPointError: gradients must be finite; these are not: {whose}"
    assert run(blamed, 2, fine, on=switched(2)) == [sentence] * 2
