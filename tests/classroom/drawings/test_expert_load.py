"""Loads of experts: every bar is the plan's, dropped tokens stand on top, levels are named."""

import pytest

from course.classroom.drawings import expert_load
from course.parallel.experts.dispatch import dispatch_plan

ASKED = [[3, 0, 2], [1, 0, 4]]


def bars(axes):
    """{label: [(from, to) of each expert]}"""
    return {group.get_label(): [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in group]
            for group in axes.containers}  # fmt: skip


def test_tokens_are_stacked_by_rank_and_dropped_ones_stand_on_top():
    axes = expert_load.draw(dispatch_plan(ASKED, capacity=3), "Load", capacity=3)
    assert bars(axes) == {
        "from rank 0": [(0, 3), (0, 0), (0, 2)],
        "from rank 1": [(3, 3), (0, 0), (2, 3)],
        "dropped": [(3, 4), (0, 0), (3, 6)],
    }
    places = [text.get_position() for text in axes.texts[:5]]
    numbers = [(text.get_text(), (x, round(y))) for text, (x, y) in zip(axes.texts, places)]
    seen = [("3", (0, 3)), ("3", (2, 3))]  # where something is dropped
    asked = [("4", (0, 4)), ("0", (1, 0)), ("6", (2, 6))]
    assert sorted(numbers) == sorted(seen + asked)
    below = {text.get_va() for text, (_, y) in zip(axes.texts, places) if 2.8 < y < 3}
    assert below == {"top"}  # a little below the line of the capacity
    assert [text.get_text() for text in axes.texts[5:7]] == ["capacity", "even share"]


def test_levels_stand_where_they_are_and_an_expert_above_its_rank():
    axes = expert_load.draw(dispatch_plan(ASKED), "Load")
    level, border = axes.lines
    assert level.get_ydata()[0] == pytest.approx(10 / 3) and border.get_xdata()[0] == 1.5
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]
    owners = {
        text.get_text(): text.get_position()[0]
        for text in axes.texts
        if text.get_text()[:4] == "rank"
    }
    assert owners == {"rank 0": 0.5, "rank 1": 2}
    assert axes.get_ylabel() == "tokens" and axes.get_title(loc="left") == "Load"


def test_ranks_differ_without_colour():
    axes = expert_load.draw(dispatch_plan([[1, 2]] * 4), "Load")
    assert len({group[0].get_hatch() for group in axes.containers[:4]}) == 4


def levels(capacity):
    """How far above its line the name of each level stands (points)."""
    axes = expert_load.draw(dispatch_plan([[20, 20]]), "Load", capacity=capacity)
    return {text.get_text(): text.xyann[1] for text in axes.texts if hasattr(text, "xyann")}


def test_equal_levels_are_one_line_and_names_of_close_ones_do_not_meet():
    assert list(levels(20)) == ["capacity = even share"]
    above = levels(21)
    assert above["capacity"] - above["even share"] >= 12
    below = levels(19)
    assert below["even share"] - below["capacity"] >= 12
