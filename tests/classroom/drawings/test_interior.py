"""Pieces of a layer: two waits, the interior between them, the border at the end."""

import pytest

from course.classroom.drawings import interior

LATE = interior.pieces([5.0, 5.1, 5.3, 5.3, 5.4])
SOON = interior.pieces([5.0, 5.0, 5.2, 5.22, 5.3])


def test_pieces_are_in_ms_from_the_first_moment():
    assert [piece.what for piece in LATE] == ["fetch", "interior", "fetch", "border"]
    times = [(piece.start, piece.end) for piece in LATE]
    assert times == [pytest.approx(pair) for pair in ((0, 100), (100, 300), (300, 300), (300, 400))]


def test_waiting_is_both_fetches():
    assert interior.waited_ms(LATE) == pytest.approx(100)
    assert interior.waited_ms(SOON) == pytest.approx(20)


def test_times_are_told_unless_they_show_nothing():
    said = interior.said_of({"waits first": LATE, "interior first": SOON})
    assert said == "of 100 ms of waiting for the halo, 20 ms are left"
    half = interior.pieces([0.0, 0.03, 0.2, 0.23, 0.3])
    assert "disturbed" in interior.said_of({"waits first": LATE, "interior first": half})
    assert "disturbed" in interior.said_of({"interior first": SOON, "waits first": LATE})


def test_lanes_have_names_and_say_how_times_were_found():
    axes = interior.draw({"waits first": LATE, "interior first": SOON}, "so", "simulated")
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "waits first",
        "interior first",
    ]
    assert axes.get_xlabel() == "time (ms), simulated"
