"""Only the numbers of ranks that there are stand at the axis."""

from course.classroom.drawings import by_ranks


def test_ranks_are_at_the_axis_and_knobs_are_those_of_lines():
    curves = {"ring": ([8, 16, 64], [1.0, 2.0, 3.0])}
    axes = by_ranks.draw(curves, "rounds", "so many", [8, 16, 64], log="x", limits=(0, 5))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "16", "64"]
    assert len(axes.xaxis.get_minorticklocs()) == 0
    assert axes.get_xlabel() == "ranks p" and axes.get_ylabel() == "so many"
    assert axes.get_ylim() == (0, 5) and axes.get_xscale() == "log"
