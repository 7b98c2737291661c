"""The numbers of a small network stand on its units and edges, and the arrows where they lead."""

import itertools

import numpy as np
import pytest

from course.classroom.drawings import network

X, H, S = [1, 0.5, 2], [1, 2], [0, 1.1]
W1, W2 = np.array([[1, -1], [2, 2], [-0.5, 1]]), np.array([[0.5, 0.1], [-0.25, 0.5]])


def drawn(**options):
    axes = network.draw([X, H, S], [W1, W2], "a title", **options)
    axes.figure.draw_without_rendering()
    return axes


def texts(axes):
    return [text for text in axes.texts if text.get_text()]


def arrows(axes):
    """Of each arrow where it begins, where it ends, and how it looks."""
    return [(t.xyann, t.xy, t.arrow_patch) for t in axes.texts if getattr(t, "arrow_patch", None)]


def test_every_unit_and_every_edge_has_its_number():
    words = [text.get_text() for text in texts(drawn())]
    assert sorted(words) == sorted(
        ["1", "0.5", "2", "1", "2", "0", "1.1"]  # units
        + ["1", "−1", "2", "2", "−0.5", "1", "0.5", "0.1", "−0.25", "0.5"]
    )


def test_layers_have_names_and_what_comes_back_stands_below_its_unit():
    axes = drawn(layers=("a", "b", "c"), back=((), (-0.3, 0.5625), (-0.75, 0.75)))
    at = {text.get_text(): text.get_position() for text in texts(axes)}
    assert {"a", "b", "c"} <= set(at)
    assert at["g = −0.3"][0] == at["b"][0] and at["g = −0.75"][0] == at["c"][0]
    assert at["g = 0.75"][1] < at["1.1"][1] < at["g = −0.75"][1]


def test_what_comes_back_can_have_another_letter():
    words = [text.get_text() for text in texts(drawn(back=((), H, S), letter="δ"))]
    assert "δ = 1.1" in words and not any(word.startswith("g") for word in words)


def test_small_numbers_are_shown_with_more_decimals_where_these_are_asked_for():
    def words(decimals):
        axes = network.draw([X, H, S], [W1, 0.0078 * W2], "", decimals=decimals)
        return {text.get_text() for text in axes.texts}

    assert {"0.004", "0.001", "−0.002"} <= words(3)
    assert not any("0.00" in word for word in words(2))


def test_no_number_covers_another():
    back = (), (-0.3, 0.5625), (-0.75, 0.75)
    shown = texts(drawn(layers=("a", "b", "c"), back=back))
    boxes = [text.get_window_extent() for text in shown]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.parametrize(("before", "behind"), [(3, 2), (2, 2), (2, 3), (3, 3), (2, 4)])
def test_no_two_edges_have_their_numbers_in_one_place(before, behind):
    a, b = network.places(0, before), network.places(1, behind)
    share = network.spot(a, b)
    heights = np.sort(np.add.outer((1 - share) * a[:, 1], share * b[:, 1]).ravel())
    assert np.diff(heights).min() > 0.15


@pytest.mark.parametrize("backward", [False, True])
def test_arrows_point_where_the_numbers_go(backward):
    lines = arrows(drawn(back=((), H, S) if backward else ()))
    assert len(lines) == 10
    assert all((begin[0] > end[0]) == backward for begin, end, _ in lines)


def test_a_positive_edge_is_solid_a_negative_one_dashed_and_the_largest_is_thickest():
    lines = arrows(drawn())
    numbers = [*W1.ravel(), *W2.ravel()]
    for (_, _, line), number in zip(lines, numbers, strict=True):
        assert (line.get_linestyle() == "-") == (number > 0), number
    widths = [line.get_linewidth() for *_, line in lines]
    assert np.argmax(widths) == np.argmax(np.abs(numbers))


def test_numbers_are_shown_without_needless_digits():
    assert [network.shown(x) for x in (1, -0.75, 0.301, 1.1254, -0.001, 12)] == [
        "1", "−0.75", "0.3", "1.13", "0", "12",
    ]  # fmt: skip


def test_edges_between_other_layers_are_refused():
    with pytest.raises(ValueError, match="zip"):
        network.draw([X, H, S], [W1], "one table too few")
