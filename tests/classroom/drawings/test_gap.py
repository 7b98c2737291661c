"""Objective and lower bound: both named, the gap at a step measured."""

from course.classroom.drawings import gap

OBJECTIVE, BOUND = [9.0, 6.0, 5.5, 5.2], [1.0, 3.0, 4.5, 5.0]


def test_both_lines_are_drawn_from_step_one_and_named():
    axes = gap.draw(OBJECTIVE, BOUND, 2, "a title")
    above, below = axes.lines
    assert list(above.get_xdata()) == [1, 2, 3, 4] and list(above.get_ydata()) == OBJECTIVE
    assert list(below.get_ydata()) == BOUND and above.get_linestyle() != below.get_linestyle()
    names = [text.get_text() for text in axes.texts]
    assert "objective" in names and "lower bound\n(dual value)" in names


def test_the_arrow_reaches_from_one_to_the_other_and_says_how_far():
    axes = gap.draw(OBJECTIVE, BOUND, 2, "a title")
    (arrow,) = [text for text in axes.texts if text.arrow_patch is not None]
    assert {tuple(arrow.xy), tuple(arrow.xyann)} == {(2, 6.0), (2, 3.0)}
    assert "duality gap after\n2 steps: 3" in [text.get_text() for text in axes.texts]
