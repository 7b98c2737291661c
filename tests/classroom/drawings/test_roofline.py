import pytest

from course.classroom.drawings import roofline

SLOPES = {"from memory": 10e9, "over a cable": 0.1e9}


def test_each_slope_is_its_bytes_a_second_and_ends_at_the_roof():
    axes = roofline.draw(80e9, SLOPES, "A title")
    flat, *slopes = axes.lines
    assert list(flat.get_ydata()) == [80, 80]
    for line, per_s in zip(slopes, SLOPES.values(), strict=True):
        (low, slow), (ridge, fast) = line.get_xydata()
        assert fast == pytest.approx(80) and ridge == pytest.approx(80e9 / per_s)
        assert slow / low == pytest.approx(per_s / 1e9) == pytest.approx(fast / ridge)
    assert len({line.get_linestyle() for line in slopes}) == 2


def test_the_operations_per_byte_of_a_corner_stand_above_it():
    axes = roofline.draw(82e9, SLOPES, "A title")
    at = {text.get_text(): text.xy for text in axes.texts}
    assert at["8.2"] == (8.2, 82) and at["820"] == (820, 82)


def test_words():
    axes = roofline.draw(80e9, SLOPES, "A title")
    assert axes.get_title(loc="left") == "A title"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("operations per byte", "GFLOP/s")
