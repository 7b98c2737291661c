"""Layouts: every index has one owner, and what cannot be cut is refused."""

import numpy as np
import pytest

from course.parallel.array.boxes import Box
from course.parallel.array.layout import cut_at, evenly, owned_by


@pytest.mark.parametrize("shape, grid", [
    ((7,), (3,)), ((5, 4), (2, 2)), ((3, 8, 5), (1, 2, 4)), ((2, 3), (3, 2)), ((0, 4), (2, 1)),
])  # fmt: skip
def test_every_index_has_one_owner_and_parts_differ_by_one_at_most(shape, grid):
    layout = evenly(shape, grid)
    owners = np.zeros(shape, int)
    for box in layout.boxes():
        owners[box.within(Box.whole(shape))] += 1
    assert (owners == 1).all()
    assert (layout.shape, layout.grid, layout.ranks) == (shape, grid, np.prod(grid))
    for axis in range(len(shape)):
        lengths = {box.shape[axis] for box in layout.boxes()}
        assert max(lengths) - min(lengths) <= 1


def test_ranks_count_the_last_axis_fastest():
    layout = evenly((4, 6), (2, 3))
    assert [layout.place(rank) for rank in range(6)] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
    ]  # fmt: skip
    assert [layout.rank(layout.place(rank)) for rank in range(6)] == list(range(6))
    assert layout.box(4) == Box.of((2, 4), (2, 4))


def test_cuts_of_ones_own():
    layout = cut_at((6, 5), {1: (0, 4, 4, 5)})
    assert layout.cuts == ((0, 6), (0, 4, 4, 5))
    assert [box.shape for box in layout.boxes()] == [(6, 4), (6, 0), (6, 1)]
    assert str(layout) == "6 x 5 cut 1 x 3"


def test_one_rank_can_own_all():
    for root in range(3):
        sizes = [box.size for box in owned_by(root, (4, 2), 3).boxes()]
        assert sizes == [8 * (rank == root) for rank in range(3)]


@pytest.mark.parametrize("wrong, sentence", [
    (lambda: evenly((4, 4), (2,)), r"the grid|a grid has a number of parts for every axis: \(2,\)"),
    (lambda: evenly((4,), (0,)), "an axis is cut into at least 1 part, not 0"),
    (lambda: evenly((4,), (True,)), "at least 1 part, not True"),
    (lambda: cut_at((4,), {1: (0, 4)}), r"the shape \(4,\) has no axis 1 to be cut"),
    (lambda: cut_at((4,), {0: (0, 3)}), r"the cuts of axis 0 go up from 0 to 4: not \(0, 3\)"),
    (lambda: cut_at((4,), {0: (0, 3, 2, 4)}), r"go up from 0 to 4: not \(0, 3, 2, 4\)"),
    (lambda: cut_at((4,), {0: ()}), r"go up from 0 to 4: not \(\)"),
    (lambda: owned_by(0, (), 2), "a number of no axes cannot be cut"),
])  # fmt: skip
def test_what_cannot_be_cut(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()
