"""Lanes of work: bars where their numbers say, one colour and hatch a kind, texts that fit."""

import pytest

from course.classroom import timeline
from course.classroom.timeline import Piece
from course.comm.trace import Event, Trace

ROWS = {
    "rank 0 computes": [Piece("backward", 0.0, 2.0, "1"), Piece("backward", 2.0, 3.0, "2")],
    "rank 0 sends": [Piece("all-reduce", 2.0, 8.0, "1"), Piece("all-reduce", 8.0, 8.01, "2")],
}


def test_bars_are_where_their_numbers_say():
    axes = timeline.lanes(ROWS, "so it went", "time (ms)")
    bars = [(bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2)
            for bar in axes.patches]  # fmt: skip
    wanted = [(0.0, 2.0, 0.0), (2.0, 1.0, 0.0), (2.0, 6.0, 1.0), (8.0, 0.01, 1.0)]
    assert [pytest.approx(bar) for bar in bars] == wanted
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(ROWS)
    assert axes.get_ylim()[0] > axes.get_ylim()[1] and axes.get_xlabel() == "time (ms)"


@pytest.mark.parametrize("look", ["get_facecolor", "get_hatch"])
def test_each_kind_of_work_has_a_colour_and_a_hatch_that_the_legend_names(look):
    axes = timeline.lanes(ROWS, "so it went", "time (ms)")
    first, second, third, fourth = [getattr(bar, look)() for bar in axes.patches]
    assert first == second != third == fourth
    assert [getattr(key, look)() for key in axes.get_legend().get_patches()] == [first, third]
    assert [text.get_text() for text in axes.get_legend().texts] == ["backward", "all-reduce"]


def test_a_text_wider_than_its_bar_is_left_out():
    axes = timeline.lanes(ROWS, "so it went", "time (ms)")
    assert [(t.get_text(), t.get_position()) for t in axes.texts] == [
        ("1", (1.0, 0)), ("2", (2.5, 0)), ("1", (5.0, 1)),
    ]  # fmt: skip


@pytest.mark.parametrize("alike, shown", [(True, ["branch"]), (False, ["branch", "1"])])
def test_texts_of_different_kinds_are_judged_each_by_itself(alike, shown):
    row = [Piece("computes", 0.0, 9.7, "branch"), Piece("computes", 9.7, 10.0, "1")]
    row += [Piece("computes", 10.0, 10.3, "\nlonger\n")]
    axes = timeline.lanes({"gpu": row}, "so it went", "time (ms)", alike=alike)
    assert [t.get_text() for t in axes.texts] == shown


def test_calls_beside_are_found_in_a_trace():
    trace, call = Trace(), "all_reduce #1 in world, in the background (float32 [4])"
    trace.add(2, [
        Event(0, "all_reduce", -1, 0, 0, 5.0, 6.0, call, True),  # before the start
        Event(0, "send", 1, 0, 16, 7.1, 7.2, call, True),  # a part of one
        Event(0, "all_reduce", -1, 0, 0, 8.0, 9.0, call, True),
        Event(0, "all_reduce", -1, 0, 0, 7.0, 8.0, call, True),
        Event(0, "all_reduce", -1, 0, 0, 9.0, 9.6, call, True),  # ends after the end
        Event(0, "broadcast", -1, 0, 0, 7.0, 8.0, "broadcast #4"),  # not beside
        Event(1, "all_reduce", -1, 0, 0, 7.5, 8.0, call, True),
    ])  # fmt: skip
    assert timeline.calls_beside(trace, 0, "all-reduce", start=6.0, end=9.5, unit_s=0.5) == [
        Piece("all-reduce", 2.0, 4.0, "1"), Piece("all-reduce", 4.0, 6.0, "2"),
    ]  # fmt: skip
