"""Boxes, and what is shown beyond the edges: as numpy pads."""

import itertools

import numpy as np
import pytest

from course.parallel.array.boxes import Box, Run, runs

MODES = {"zero": "constant", "circular": "wrap", "reflect": "reflect", "replicate": "edge"}


def test_a_box_knows_its_shape_and_size():
    box = Box.of((2, 5), (-1, 3))
    assert (box.shape, box.size, box.intervals) == ((3, 4), 12, [(2, 5), (-1, 3)])
    assert str(box) == "[2:5, -1:3]"
    assert Box.whole((2, 3)) == Box((0, 0), (2, 3))
    assert Box.of((4, 2)).shape == (0,)
    assert (Box.of().shape, Box.of().size) == ((), 1)


def test_what_boxes_share_is_in_both_and_may_be_nothing():
    intervals = [(a, b) for a in range(4) for b in range(a, 5)]
    for first, second in itertools.product(intervals, repeat=2):
        shared = set(range(*first)) & set(range(*second))
        found = Box.of(first).meet(Box.of(second))
        assert set(range(found.starts[0], found.stops[0])) == shared
        assert found.starts[0] <= found.stops[0]


def test_a_box_is_cut_out_of_what_holds_a_larger_one():
    held = np.arange(20).reshape(4, 5)  # the box [10:14, 20:25]
    part = Box.of((11, 13), (20, 22)).within(Box.of((10, 14), (20, 25)))
    assert held[part].tolist() == [[5, 6], [10, 11]]
    assert held[Box.of((12, 11), (20, 21)).within(Box.of((10, 14), (20, 25)))].size == 0


@pytest.mark.parametrize("fill", MODES)
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_runs_show_what_numpy_pads(fill, length):
    line = np.arange(1, length + 1)
    for before, after in itertools.product(range(4), range(6)):
        padded = np.pad(line, (before, after), MODES[fill])
        shown = np.zeros(before + length + after, int)
        for at, first, step, count in runs(-before, length + after, length, fill):
            shown[at + before : at + before + count] = line[first + step * np.arange(count)]
        assert shown.tolist() == padded.tolist()


def test_what_lies_on_one_side_only_is_shown_too():
    assert runs(7, 9, 5, "zero") == []
    assert runs(7, 9, 5, "circular") == [Run(7, 2, 1, 2)]
    assert runs(5, 8, 5, "reflect") == [Run(5, 3, -1, 3)]
    assert runs(-3, -1, 5, "replicate") == [Run(-3, 0, 0, 2)]
    assert runs(2, 2, 5, "circular") == []
