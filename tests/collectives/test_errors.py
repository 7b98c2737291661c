"""Calls that differ between ranks, and calls that cannot be: a sentence each."""

import pytest
import torch

from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from course.comm import CommMismatch
from course.worlds import RankError, run


def ones(n, dtype=torch.float32):
    return torch.ones(n, dtype=dtype)


def made_to(combine):
    def op(a, b):
        return combine(a, b)

    return op


PARTS = [ones(2), ones(3), ones(4)]
DISAGREEMENTS = {  # what rank 1 does, what ranks 0 and 2 do
    "root": (lambda c: broadcast(c, ones(2), 1), lambda c: broadcast(c, ones(2))),
    "name": (lambda c: broadcast(c, ones(2)), lambda c: reduce(c, ones(2))),
    "op": (lambda c: reduce(c, ones(2), "max"), lambda c: reduce(c, ones(2))),
    "function": (lambda c: all_reduce(c, ones(2), torch.fmin),
                 lambda c: all_reduce(c, ones(2), torch.fmax)),
    "functions of one name": (lambda c: all_reduce(c, ones(2), made_to(torch.fmin)),
                              lambda c: all_reduce(c, ones(2), made_to(torch.fmax))),
    "dtype": (lambda c: all_reduce(c, ones(2, torch.int32)), lambda c: all_reduce(c, ones(2))),
    "shape": (lambda c: all_reduce(c, ones(3)), lambda c: all_reduce(c, ones(2))),
    "algorithm": (lambda c: all_reduce(c, ones(2), algorithm="flat"),
                  lambda c: all_reduce(c, ones(2))),
    "scatter": (lambda c: scatter(c, ones(2), PARTS, 1), lambda c: scatter(c, ones(2), PARTS, 2)),
    "gather": (lambda c: gather(c, ones(2), root=1), lambda c: scatter(c, ones(2), root=1)),
    "outs": (lambda c: all_gather(c, PARTS[::-1], ones(3)),
             lambda c: all_gather(c, PARTS, ones(3))),
    "parts": (lambda c: reduce_scatter(c, ones(3), PARTS[::-1]),
              lambda c: reduce_scatter(c, ones(2 + c.rank), PARTS)),
    "all_to_all": (lambda c: all_to_all(c, PARTS, PARTS), lambda c: c.barrier()),
}  # fmt: skip


def disagree(comm, disagreements):
    """What this rank hears in each; then a call in which all agree."""
    heard = {}
    for what, (odd, usual) in disagreements.items():
        with pytest.raises(CommMismatch) as caught:
            (odd if comm.rank == 1 else usual)(comm)
        heard[what] = str(caught.value)
    x = ones(4)
    all_reduce(comm, x)
    return heard, x.tolist()


def test_ranks_in_different_calls_all_hear_who_is_in_which():
    results = run(disagree, 3, DISAGREEMENTS)
    assert [total for _, total in results] == [[3.0] * 4] * 3
    heard = results[0][0]
    assert [sentences for sentences, _ in results] == [heard] * 3
    for sentence in heard.values():
        assert sentence.startswith("rank 1 is in ") and "; ranks 0, 2 are in " in sentence
    assert heard["root"] == (
        "rank 1 is in broadcast #1 (float32 [2], root 1); "
        "ranks 0, 2 are in broadcast #1 (float32 [2], root 0)"
    )


def scatter_too_little(comm):
    scatter(comm, ones(4), [ones(4), ones(3), ones(4)] if comm.rank == 0 else None)


def exchange_too_little(comm):
    all_to_all(comm, [ones(2), ones(3 - comm.rank)], [ones(2), ones(2)])


@pytest.mark.parametrize(
    ("fn", "ranks", "sentence"),
    [
        (scatter_too_little, 3, r"rank 0 is in send to rank 1 \(float32 \[3\], tag 0\); "
                                r"rank 1 is in recv from rank 0 \(float32 \[4\], tag 0\)"),
        (exchange_too_little, 2, r"rank 0 is in recv from rank 1 \(float32 \[3\], tag 1\); "
                                 r"rank 1 is in send to rank 0 \(float32 \[2\], tag 1\)"),
    ],
)  # fmt: skip
def test_a_part_of_another_length_than_the_place_for_it(fn, ranks, sentence):
    with pytest.raises(RankError, match=sentence):
        run(fn, ranks)


REFUSALS = {
    "rank 0: no root 2 among 2 ranks": lambda c: broadcast(c, ones(2), 2),
    "rank 0: no root -1 among 2 ranks": lambda c: reduce(c, ones(2), root=-1),
    "rank 0: no root None among 2 ranks": lambda c: scatter(c, ones(2), root=None),
    "rank 0: no root 1.0 among 2 ranks": lambda c: gather(c, ones(2), root=1.0),
    "rank 0: no root True among 2 ranks": lambda c: broadcast(c, ones(2), True),
    "rank 0: segment_bytes must be a whole number of at least 1, not 0":
        lambda c: all_reduce(c, ones(2), segment_bytes=0),
    "rank 0: segment_bytes must be a whole number of at least 1, not -5":
        lambda c: all_reduce(c, ones(2), algorithm="tree", segment_bytes=-5),
    "rank 0: segment_bytes must be a whole number of at least 1, not 2.5":
        lambda c: all_reduce(c, ones(2), segment_bytes=2.5),
    "rank 0: fabric must be a choice.Fabric, not None":
        lambda c: all_reduce(c, ones(2), algorithm="auto", fabric=None),
    "rank 0: what is broadcast must be a tensor, not list": lambda c: broadcast(c, [1, 2]),
    "rank 0: what is reduced must be a tensor, not float 1.0": lambda c: reduce(c, 1.0),
    "rank 0: parts must hold 2 tensors, not 3": lambda c: scatter(c, ones(2), [ones(2)] * 3),
    "rank 0: outs must hold 2 tensors, not None": lambda c: gather(c, ones(2)),
    "rank 0: outs must hold 2 tensors, not 1": lambda c: all_gather(c, [ones(2)], ones(2)),
    "rank 0: parts must hold 2 tensors, not 0": lambda c: reduce_scatter(c, ones(2), []),
    "rank 0: each of outs must be a tensor, not int 7": lambda c: all_to_all(c, [7, 7], PARTS[:2]),
    "rank 0: its own part is float32 [1], but the place for it float32 [4]":
        lambda c: all_gather(c, [ones(4), ones(4)], ones(1)),
    "rank 0: its own part is float32 [3], but the place for it int64 [3]":
        lambda c: gather(c, ones(3), [ones(3, torch.int64), ones(3)]),
    "rank 0: its own part is float32 [2], but the place for it float64 [2]":
        lambda c: reduce_scatter(c, ones(2, torch.float64), [ones(2), ones(2)]),
    "rank 0: its own part is bool [2], but the place for it bool [3]":
        lambda c: all_to_all(c, [ones(3, torch.bool), ones(1)], [ones(2, torch.bool)] * 2),
    "cannot receive into an expanded tensor (float32 [5] with strides [0])":
        lambda c: reduce(c, ones(1).expand(5)),
    "rank 0: cannot receive into an expanded tensor":
        lambda c: scatter(c, ones(1).expand(2), [ones(2)] * 2),
    "rank 0: cannot receive into an expanded tensor (float32":
        lambda c: broadcast(c, ones(1).expand(5), 1),
    "op must be sum, mean, prod, min, max or a function, not 'average'":
        lambda c: reduce_scatter(c, ones(2), [ones(2)] * 2, "average"),
    "no prod of bool: max says whether any is true, min whether all are":
        lambda c: reduce(c, ones(2, torch.bool), "prod"),
}  # fmt: skip


def what_is_refused(comm, calls):
    """What each call raises on rank 0; rank 1 takes no part."""
    sentences = []
    if comm.rank == 0:
        for call in calls:
            with pytest.raises(ValueError) as caught:
                call(comm)
            sentences.append(str(caught.value))
    return sentences


def test_what_cannot_be_done_is_refused_in_a_sentence():
    sentences, _ = run(what_is_refused, 2, list(REFUSALS.values()), checked=False)
    for expected, sentence in zip(REFUSALS, sentences, strict=True):
        assert expected in sentence


WAYS = {
    r"rank \d: algorithm must be one of flat, tree, recursive_doubling, ring, halving_doubling, "
    r"hierarchical, native, auto, not 'star'": {"algorithm": "star"},
    r"op must be sum, mean, prod, min, max or a function, not 'average'": {"op": "average"},
    r"no mean of int64: it would have to be rounded": {"op": "mean"},
    r"the backend reduces by sum, mean, prod, min, max, not by": {
        "op": torch.gcd, "algorithm": "native"},
}  # fmt: skip


def reduce_integers(comm, options):
    all_reduce(comm, torch.ones(3, dtype=torch.int64), **options)


@pytest.mark.parametrize(("sentence", "options"), WAYS.items())
def test_unknown_ways_are_refused(sentence, options):
    with pytest.raises(RankError, match=sentence):
        run(reduce_integers, 2, options)


def reduce_this(comm, make):
    all_reduce(comm, make())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: torch.ones(3).expand(2, 3), r"rank \d: cannot receive into an expanded tensor "
                                             r"\(float32 \[2, 3\] with strides \[0, 1\]\)"),
        (lambda: [1.0, 2.0], r"rank \d: what is reduced must be a tensor, not list \[1.0, 2.0\]"),
        (lambda: torch.eye(3).to_sparse(), r"rank \d: what is reduced must be a dense tensor"),
        (lambda: torch.ones(3, dtype=torch.bool), r"no sum of bool: max says whether any is true"),
    ],
)  # fmt: skip
def test_what_cannot_be_reduced_is_refused(make, sentence):
    with pytest.raises(RankError, match=sentence):
        run(reduce_this, 2, make)
