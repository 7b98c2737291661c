import pytest

from course.classroom.drawings import speedup

POINTS = {"measured": {1: 1, 4: 3.2}, "simulated, FDR": {1: 1, 4: 3.5}, "published": {4: 3.0}}


def test_every_point_stands_where_it_is_said():
    axes = speedup.draw(POINTS, "The answer")
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines[1:]}
    assert drawn == {"measured": [[1, 1], [4, 3.2]], "simulated, FDR": [[1, 1], [4, 3.5]],
                     "published": [[4, 3]]}  # fmt: skip
    assert axes.get_title(loc="left") == "The answer"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ranks", "speed-up")


def test_sources_differ_in_their_markers():
    lines = speedup.draw(POINTS, "").lines[1:]
    assert len({(line.get_marker(), line.get_fillstyle()) for line in lines}) == 3
    again = speedup.draw({"simulated, 1 Gb/s": {1: 1}, "simulated, FDR": {1: 1}}, "").lines[1:]
    assert again[0].get_marker() == again[1].get_marker() == lines[1].get_marker()


def test_a_source_that_is_none_is_refused():
    with pytest.raises(KeyError):
        speedup.draw({"hoped": {1: 1}}, "")


def test_the_ideal_is_as_many_as_there_are_ranks_and_laws_are_dashed():
    axes = speedup.draw(POINTS, "", curves={"half": lambda p: p / 2, "third": lambda p: p / 3})
    ideal, half, third = axes.lines[:3]
    assert (ideal.get_xdata() == ideal.get_ydata()).all() and ideal.get_xdata()[-1] == 4
    assert (half.get_ydata() == half.get_xdata() / 2).all()
    assert len({line.get_linestyle() for line in (ideal, half)}) == 2
    assert half.get_label() == "half" and third.get_label() == "third"


def test_no_point_lies_behind_the_legend():
    legend = speedup.draw(POINTS, "").get_legend()
    assert legend.get_bbox_to_anchor().x0 >= legend.axes.bbox.x1


def test_laws_alone_reach_as_far_as_is_asked():
    axes = speedup.draw({}, "", curves={"half": lambda p: p / 2}, ranks=(1, 8, 64))
    assert [line.get_xdata()[-1] for line in axes.lines] == [64, 64]
    assert axes.get_xticks().tolist() == [1, 8, 64]
