"""Cuts of a sequence: every position once, and as much work for all."""

import pytest
import torch

from course.parallel.sequence import SequenceCut, contiguous, zigzag
from course.worlds import RankError, run


@pytest.mark.parametrize("make", [contiguous, zigzag])
@pytest.mark.parametrize("length", [0, 1, 5, 16, 37])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_position_belongs_to_one_rank(make, length, ranks):
    cut = make(length, ranks)
    positions = [cut.positions(rank) for rank in range(ranks)]
    assert torch.equal(torch.cat(positions).sort().values, torch.arange(length))
    assert cut.length == length
    assert [cut.count(rank) for rank in range(ranks)] == list(map(len, positions))
    assert [cut.pairs(rank) for rank in range(ranks)] == [int((p + 1).sum()) for p in positions]


def test_the_picture_of_both():
    held = {0: (0, 7), 1: (1, 6), 2: (2, 5), 3: (3, 4)}
    assert {rank: tuple(zigzag(8, 4).positions(rank).tolist()) for rank in range(4)} == held
    assert contiguous(8, 4).parts == (((0, 2),), ((2, 4),), ((4, 6),), ((6, 8),))


def test_with_zigzag_all_ranks_have_the_same_work_and_contiguous_the_last_almost_twice_the_mean():
    work = [zigzag(4096, 8).pairs(rank) for rank in range(8)]
    assert len(set(work)) == 1
    contiguously = [contiguous(4096, 8).pairs(rank) for rank in range(8)]
    assert 1.8 < max(contiguously) / (sum(contiguously) / 8) < 2


def test_a_part_is_taken_in_the_order_of_the_cut():
    x = torch.arange(16).view(2, 8)
    assert zigzag(8, 2).part(x, 1, 1).tolist() == [[2, 3, 4, 5], [10, 11, 12, 13]]


def test_what_is_longer_than_the_cut_is_refused():
    """Its end was in nobody's part, in silence."""
    with pytest.raises(ValueError, match="rank 1: 8 positions are cut: not 9"):
        zigzag(8, 2).part(torch.arange(9), 1)


CUTS = {
    "ranks": contiguous(6, 3),
    "twice": SequenceCut((((0, 3),), ((2, 6),))),
    "missing": SequenceCut((((0, 2),), ((3, 6),))),
    "back": SequenceCut((((0, 3),), ((3, 1),))),
}


def checked(comm, which):
    CUTS[which].check(comm)


@pytest.mark.parametrize("which, sentence", [
    ("ranks", "rank 0: the sequence is cut for 3 ranks, and there are 2"),
    ("twice", "rank 0: each position belongs to one rank: after 3 comes the interval 2 to 6"),
    ("missing", "rank 0: each position belongs to one rank: after 2 comes the interval 3 to 6"),
    ("back", "rank 0: each position belongs to one rank: after 3 comes the interval 3 to 1"),
])  # fmt: skip
def test_what_is_no_cut(which, sentence):
    with pytest.raises(RankError, match=sentence):
        run(checked, 2, which, timeout=5)
