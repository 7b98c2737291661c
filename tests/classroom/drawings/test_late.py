"""Late ranks: counted at the end of their row, and told apart without colour."""

from course.classroom.drawings import late


def test_late_ranks_are_large_dark_and_counted():
    axes = late.draw({"gossip": [1.0, 9.0, 1.0], "all-reduce": [9.0, 9.0, 9.0]}, 5, "who is late")
    assert [text.get_text().strip() for text in axes.texts] == ["1 of 3 late", "3 of 3 late"]
    small, large, none, all_of_them = axes.lines
    assert small.get_xdata().tolist() == [0, 2] and large.get_xdata().tolist() == [1]
    assert len(none.get_xdata()) == 0 and all_of_them.get_xdata().tolist() == [0, 1, 2]
    assert small.get_markersize() < large.get_markersize()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gossip", "all-reduce"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first row is at the top"
