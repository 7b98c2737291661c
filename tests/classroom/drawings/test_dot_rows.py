from course.classroom.drawings import dot_rows

ROWS = {"first": {"counted": 15.0, "timed": 1.0}, "second": {"counted": 2.3}}


def test_every_number_stands_in_the_row_of_its_thing():
    axes = dot_rows.draw(ROWS, "", "times")
    dots = {line.get_label(): line.get_xydata().tolist() for line in axes.lines[2:]}
    assert dots == {"counted": [[15, 0], [2.3, 1]], "timed": [[1, 0]]}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]
    assert axes.yaxis_inverted() and axes.get_xscale() == "linear"


def test_kinds_differ_in_their_markers():
    axes = dot_rows.draw(ROWS, "", "times", log=True)
    markers = [line.get_marker() for line in axes.lines[2:]]
    assert len(set(markers)) == 2 and axes.get_xscale() == "log"


def test_a_mark_is_named():
    axes = dot_rows.draw(ROWS, "", "times", marks={"as many": 1.0})
    assert [text.get_text() for text in axes.texts] == ["as many"]
