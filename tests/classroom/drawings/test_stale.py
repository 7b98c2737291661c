"""Stale gradients drawn: walks that arrive or do not, lines with the spread of their seeds."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from course.classroom.drawings.stale import (
    LOOKS,
    arrives,
    limits,
    losses_by_rate,
    stale_walk,
    two_clocks,
    walk,
)

LOSSES = [[1.0, 2.0, 3.0], [0.5, 0.6, 0.7], [0.2, 0.25, 9.0]]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def limit(s):
    return 2 * math.sin(math.pi / (4 * s + 2))


def test_a_walk_steps_by_the_slope_of_the_weight_of_so_many_updates_ago():
    assert walk(0, 0.5, 3) == [1, 0.5, 0.25, 0.125]
    assert walk(1, 0.5, 3) == [1, 0.5, 0, -0.25]
    assert walk(9, 0.5, 3) == [1, 0.5, 0, -0.5]


@pytest.mark.parametrize("s", range(16))
def test_a_walk_arrives_below_the_limit_of_its_staleness_and_not_above(s):
    assert arrives(walk(s, 0.93 * limit(s))) and not arrives(walk(s, 1.07 * limit(s)))


def test_the_title_says_whether_the_walk_arrives():
    assert stale_walk(3, 0.4).get_title(loc="left").replace("\n", " ").endswith("the walk arrives")
    assert "does not arrive" in stale_walk(4, 0.4).get_title(loc="left").replace("\n", " ")


def test_what_arrived_and_what_diverged_have_their_own_marks():
    axes = limits(limit, {(0, 1.8): True, (0, 2.2): False, (3, 0.4): True}, "a title")
    formula, guess, good, bad = axes.get_lines()
    assert formula.get_ydata()[7] == pytest.approx(limit(7)) and guess.get_ydata()[7] == 0.25
    assert good.get_xydata().tolist() == [[0, 1.8], [3, 0.4]]
    assert bad.get_xydata().tolist() == [[0, 2.2]] and good.get_marker() != bad.get_marker()


def test_a_mark_that_is_nowhere_is_not_explained():
    legend = limits(limit, {}, "a title").get_legend()
    assert [text.get_text().split()[0] for text in legend.texts] == ["limit", "guess:"]


def test_losses_by_rate_are_medians_with_the_spread_of_seeds():
    lines = {"in step": ([0.1, 0.2, 0.4], LOSSES), "stale": ([0.1, 0.2], LOSSES[:2])}
    one, other = losses_by_rate({"left": ("rate", lines), "right": ("gamma", lines)}, "loss", top=2)
    first, second = one.get_lines()[:2]
    assert first.get_ydata().tolist() == [2.0, 0.6, 0.25]
    heights = one.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == 0.2 and heights.max() == 9.0
    assert (
        one.get_ylim() == (pytest.approx(0.8 * 0.2), 2)
        and one.get_xlabel() == "rate"
        and other.get_xlabel() == "gamma"
    )
    assert [text.get_text() for text in one.get_legend().texts] == list(lines)
    assert first.get_linestyle() != second.get_linestyle()


def test_losses_by_rate_share_one_range_whichever_panel_has_the_least():
    high, low = {"fresh": ([0.1, 0.2], LOSSES[:2])}, {"stale": ([0.1, 0.2], LOSSES[1:])}
    for order in ((high, low), (low, high)):
        drawn = losses_by_rate({name: ("rate", each) for name, each in zip("ab", order)}, "loss", 2)
        assert [axes.get_ylim() for axes in drawn] == [(pytest.approx(0.8 * 0.2), 2)] * 2


def test_the_same_losses_stand_by_updates_and_by_seconds():
    courses = {"in step": ([0, 1, 2], [0.0, 4.0, 8.0], LOSSES),
               "stale": ([0, 8, 16], [0.0, 1.0, 2.0], LOSSES)}  # fmt: skip
    left, right = two_clocks(courses, ("by updates", "by seconds"), "loss")
    assert [line.get_xdata().tolist() for line in left.get_lines()] == [[0, 1, 2], [0, 8, 16]]
    assert [line.get_xdata().tolist() for line in right.get_lines()] == [[0, 4, 8], [0, 1, 2]]
    assert np.array_equal(left.get_lines()[0].get_ydata(), right.get_lines()[0].get_ydata())
    (key,) = left.figure.legends
    assert [text.get_text() for text in key.texts] == list(courses)


def test_no_two_looks_are_alike_in_grey_print():
    assert len({(str(dashes), marker) for _, dashes, marker in LOOKS}) == len(LOOKS) == 5
