import pytest

from course.classroom.drawings import overlap

MOMENTS = [0, 0.001, 0.002, 0.004, 0.006]  # forward 1 ms, layer 2: 1 ms, layer 1: 2 ms
SENDS = [(0.002, 0.005)]


def bars(axes):
    return [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_x() + b.get_width())
            for b in axes.patches]  # fmt: skip


def test_all_runs_share_one_axis_of_time():
    axes = overlap.two_lanes({"one": (MOMENTS, SENDS), "late": (MOMENTS, [])}, "title", "simulated")
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["one: computes", "one: sends", "late: computes", "late: sends"]
    assert axes.get_xlabel() == "time (ms), simulated"
    found = bars(axes)
    right = [(0, 0, 1), (0, 1, 2), (0, 2, 4), (1, 2, 5), (2, 0, 1), (2, 1, 2), (2, 2, 4)]
    assert [bar for each in found for bar in each] == pytest.approx(
        [bar for each in right for bar in each], abs=1e-6
    )


def test_backward_has_a_bar_for_each_layer_and_numbers_are_for_buckets_alone():
    pieces = overlap.computed([1.0, 2.0, 4.0])
    assert [(piece.what, piece.text) for piece in pieces] == [
        (overlap.FORWARD, ""), (overlap.BACKWARD, ""), (overlap.BACKWARD, ""),
    ]  # fmt: skip
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 1), (1, 2), (2, 4)]


def test_a_choice_says_what_it_costs_beside_the_best_and_the_arithmetic():
    spans = [(2.0, 5.0), (5.0, 8.0)]
    above, below = overlap.choice([1.0, 2.0, 4.0], spans, [1, 2], [8.0, 7.0], 1, dots=([2], [7.1]))
    assert above.get_title("left") == "Layers in a bucket: 1. The step takes 8.0 ms."
    best = "The least of all choices: 7.0 ms. Arithmetic alone: 4.0 ms."
    assert below.get_title("left").replace("\n", " ") == best
    assert below.get_ylim()[0] == 0  # the axis does not exaggerate
    predicted, simulated, floor, here = below.lines
    assert list(predicted.get_ydata()) == [8, 7] and list(simulated.get_ydata()) == [7.1]
    assert list(floor.get_ydata()) == [4, 4]
    assert list(here.get_xydata()[0]) == [1, 8]
