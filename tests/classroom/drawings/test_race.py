"""The race of all-reduces: lines named at their ends, dots by how they were found."""

import itertools

import matplotlib.pyplot as plt
import pytest

from course.classroom.drawings.race import GAP, LOOKS, draw, spaced
from course.collectives import cost

LINES = {"flat": ([1, 10], [2.0, 20.0]), "ring": ([1, 10], [1.0, 10.0]),
         "halving_doubling": ([1, 10], [0.5, 10.1])}  # fmt: skip


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def drawn(**options):
    return draw(LINES, "who is first", "vector (bytes)", "time (s)", **options)


def names(axes):
    return {text.get_text(): text for text in axes.texts}


def test_each_line_has_its_name_at_its_end_in_its_colour_and_none_covers_another():
    named = names(drawn())
    assert sorted(named) == sorted(LINES)
    assert all(text.get_color() == LOOKS[name][0] for name, text in named.items())
    heights = sorted(text.get_position()[1] for text in named.values())
    gaps = [high - low for low, high in itertools.pairwise(heights)]
    assert min(gaps) >= GAP - 1e-9
    assert named["flat"].get_position()[1] == heights[-1], "in the order of the lines"


def test_no_two_algorithms_look_alike_in_grey_print():
    assert len({(str(dashes), marker) for _, dashes, marker in LOOKS.values()}) == len(LOOKS)


def test_dots_found_here_are_full_and_those_of_another_time_are_hollow():
    here, then = {"ring": ([1], [1.1])}, {"ring": ([1], [1.0])}
    axes = drawn(dots={"measured here": here, "recorded": then})
    keys = axes.get_legend()
    assert [text.get_text() for text in keys.texts] == ["measured here", "recorded"]
    faces = [line.get_markerfacecolor() for line in keys.legend_handles]
    assert faces == ["0.4", "none"]


def test_without_the_answer_nothing_tells_the_lines_apart():
    axes = drawn(answer=False)
    assert not names(axes)
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 1


@pytest.mark.parametrize(("places", "moved"), [
    ([], []), ([0.5], [0.5]), ([0.1, 0.5], [0.1, 0.5]), ([0.5, 0.5], [0.45, 0.55]),
    ([0.45, 0.5, 0.52], [0.39, 0.49, 0.59]), ([0.3, 0.42, 0.44], [0.28667, 0.38667, 0.48667]),
])  # fmt: skip
def test_names_are_moved_apart_as_little_as_it_takes(places, moved):
    assert spaced(places, 0.1) == pytest.approx(moved, abs=1e-4)


def test_every_all_reduce_that_can_be_predicted_has_a_look():
    assert set(LOOKS) == set(cost.all_reduces(2, 1, 4))
