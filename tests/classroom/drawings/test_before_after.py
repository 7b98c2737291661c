"""Before and after: rows in the order of after, hollow before, full after with its number."""

from course.classroom.drawings import before_after

BEFORE = {"a": [90.0, 92.0], "b": [70.0, 72.0], "c": [80.0, 80.0]}
AFTER = {"a": [60.0, 64.0], "b": [69.0, 71.0], "c": [75.0, 85.0]}
KINDS = {"a": "tied", "b": "pooled", "c": "pooled"}


def drawn():
    return before_after.draw(BEFORE, AFTER, KINDS, "a title", "accuracy (%)", guess=50)


def test_the_best_after_the_change_is_on_top():
    axes = drawn()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c", "b", "a"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_marks_stand_at_the_means_and_the_number_is_that_of_after():
    hollow = [line for line in drawn().lines if line.get_markerfacecolor() == "white"]
    assert [float(line.get_xdata()[0]) for line in hollow] == [80.0, 71.0, 91.0]
    written = [text.get_text() for text in drawn().texts if text.get_text()]
    assert [text for text in written if text.isdigit()] == ["80", "70", "62"]


def test_kinds_differ_in_their_marks_and_are_named():
    axes = drawn()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["tied", "pooled"]
    marks = {line.get_label(): line.get_marker() for line in axes.lines}
    assert marks["tied"] != marks["pooled"]


def test_the_spread_of_after_is_a_line_from_its_lowest_to_its_highest():
    ends = [list(line.get_xdata()) for line in drawn().lines if len(line.get_xdata()) == 2]
    assert [75.0, 85.0] in ends and [60.0, 64.0] in ends


def test_a_guess_is_marked():
    assert "a guess" in [text.get_text() for text in drawn().texts]
