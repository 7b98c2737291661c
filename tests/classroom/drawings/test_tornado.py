import matplotlib as mpl

from course.classroom.drawings import tornado
from course.cluster.cots.machine import Bar

BARS = [Bar("arithmetic", 40.0, 80.0), Bar("network", 50.0, 60.0)]


def test_bars_reach_from_low_to_high_in_their_order():
    axes = tornado.draw(BARS, 60, "The answer", "speed-up", marks={"published": 47})
    reach = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert reach == [(40, 80), (50, 60)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["arithmetic", "network"]
    assert axes.yaxis_inverted()
    assert axes.get_title(loc="left") == "The answer" and axes.get_xlabel() == "speed-up"


def test_both_ends_are_written():
    texts = [text.get_text() for text in tornado.draw(BARS, 60, "", "speed-up").texts]
    assert texts == ["40", "80", "50", "60"]


def test_lines_say_what_was_assumed_and_what_is_known():
    lines = tornado.draw(BARS, 60, "", "speed-up", marks={"published": 47}).lines
    assert {line.get_label(): line.get_xdata()[0] for line in lines} == {
        "as assumed: 60": 60, "published": 47}  # fmt: skip
    assert len({line.get_linestyle() for line in lines}) == 2


def test_a_chosen_bar_stands_out():
    first, second = tornado.draw(BARS, 60, "", "speed-up", chosen=BARS[1]).patches
    assert first.get_facecolor() == mpl.colors.to_rgba("0.9") != second.get_facecolor()
    alike = [bar.get_facecolor() for bar in tornado.draw(BARS, 60, "", "speed-up").patches]
    assert alike == [second.get_facecolor()] * 2


def test_a_bar_of_what_is_known_is_hatched():
    first, second = tornado.draw(BARS, 60, "", "speed-up", known=BARS[1:2]).patches[:2]
    assert (first.get_hatch(), second.get_hatch()) == (None, "//")
