"""Losses are told apart by dashes and markers, named at their ends, and the lowest has a ring."""

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from course.classroom.drawings import learning_curves

FALLING, BACK = [2.0, 1.0, 0.5, 0.25, 0.1], [2.0, 1.5, 1.2, 1.4, 1.6]


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("agg")
    yield
    plt.close("all")


def drawn(**options):
    return learning_curves.draw({"training": FALLING, "validation": BACK}, "a title", **options)


def test_lines_differ_without_colour():
    a, b = drawn().lines
    assert a.get_linestyle() != b.get_linestyle()
    assert a.get_marker() != b.get_marker()


def test_each_line_is_named_at_its_end():
    ends = {text.get_text().strip(): text.xy for text in drawn().texts}
    assert ends == {"training": (4, 0.1), "validation": (4, 1.6)}


def test_the_lowest_loss_of_one_line_has_a_ring():
    *_, ring = drawn(lowest="validation").lines
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (2, 1.2)


def test_a_line_that_leaves_the_picture_is_named_where_it_was_last_seen():
    blown_up = [2.0, 3.0, 1e9, np.inf, np.nan]
    axes = learning_curves.draw({"training": blown_up}, "a title", limits=(0.01, 10))
    assert axes.texts[0].xy == (1, 3.0)


def test_no_epoch_is_marked_behind_the_last():
    assert max(drawn().get_xticks()) <= 4


def test_names_of_lines_that_end_together_do_not_touch():
    close = {"training": [2.0, 1.0, 0.50], "validation": [2.0, 1.0, 0.51], "test": [2.0, 1.0, 0.5]}
    axes = learning_curves.draw(close, "a title", limits=(0.01, 10))
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
