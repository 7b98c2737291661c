"""From pixels to neurons: every number stands in a box, and lines lead to those that read it."""

import itertools

import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from course.classroom.drawings import path

ROWS = {"by hand": [(4, 1, 5, 5), (3, -4, 0), (9, 16, 0), (5, 4), (1, -1)]}
STEPS = {"pixels": 0, "match": 2, "rectify": 1, "pool": 2, "normalise": 2}


def drawn(rows=ROWS):
    axes = path.draw(rows, "a title", steps=STEPS)
    axes.figure.draw_without_rendering()
    return axes


def boxes(axes):
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def test_every_number_stands_in_a_box_and_every_step_has_its_name():
    axes = drawn()
    words = [text.get_text() for text in axes.texts]
    numbers = ["4", "1", "5", "5", "3", "−4", "0", "9", "16", "0", "5", "4", "1", "−1"]
    assert sorted(words) == sorted(["by hand", *STEPS, *numbers])
    assert len(boxes(axes)) == 14


def test_numbers_below_0_have_another_ground():
    axes = drawn()
    tinted = [box for box in boxes(axes) if box.get_facecolor()[:3] == to_rgb("#F8DDCB")]
    assert len(tinted) == 2
    centres = [tuple(map(float, box.get_center())) for box in tinted]
    below_0 = [text.get_position() for text in axes.texts if text.get_text().startswith("−")]
    assert sum(sorted(centres), ()) == pytest.approx(sum(sorted(below_0), ()))


def test_a_line_leads_from_each_number_to_those_that_read_it():
    axes = drawn()
    heights = [tuple(line.get_ydata()) for line in axes.lines]
    # 3 windows of 2 pixels, 3 squares, 2 pools of 2, both pools into each of 2 neurons
    assert len(heights) == 6 + 3 + 4 + 4
    assert heights[:4] == [(1.5, 1), (0.5, 1), (0.5, 0), (-0.5, 0)]
    assert heights[6:9] == [(1, 1), (0, 0), (-1, -1)]


def test_rows_stand_one_below_the_other_without_overlap():
    axes = drawn(ROWS | {"again": ROWS["by hand"]})
    extents = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
    at = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert at["again"] < at["by hand"] - 4


def test_without_other_steps_they_are_those_of_a_stage():
    words = [text.get_text() for text in path.draw(ROWS, "a title").texts]
    assert {"pixels", "match\n(filter)", "pool\n(root of sum)", "normalise"} <= set(words)
