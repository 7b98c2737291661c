import pytest
import torch

from course.classroom.drawings import lines

TWO = {"first": (range(3), [1, 2, 3]), "second": (range(3), [1, 4, 9])}


def places(axes):
    """Where each name stands, as shares of the axes."""
    return {text.get_text(): text.xy for text in axes.texts}


def test_lines_differ_in_their_dashes_and_have_their_names_at_their_ends():
    axes = lines.draw(TWO, "Two", "x (1)", "y (1)")
    first, second = axes.lines
    assert first.get_linestyle() != second.get_linestyle()
    assert axes.get_legend() is None
    ends = axes.transAxes.inverted().transform(axes.transData.transform([(2, 3), (2, 9)]))
    assert places(axes)["first"] == pytest.approx(tuple(ends[0]))
    assert places(axes)["second"] == pytest.approx(tuple(ends[1]))


def test_names_that_would_meet_stand_one_above_the_other():
    same = {"a\nb": ([0, 1], [0, 5.0]), "c": ([0, 1], [0, 5.01]), "far": ([0, 0.1], [0, 5.0])}
    up = {name: at[1] for name, at in places(lines.draw(same, "Three", "x", "y")).items()}
    assert up["c"] == pytest.approx(up["a\nb"] + 2 * lines.APART)
    assert up["a\nb"] < up["far"] < up["c"]


def sides(axes):
    """On which side of the end of its line each name is, and how far above it."""
    return {text.get_text(): (text.get_ha(), text.xyann[1]) for text in axes.texts}


def test_a_name_hides_no_line():
    crossing = {"short": ([0, 1], [2.0, 1.0]), "long": ([0, 4], [1.0, 1.0])}
    stands = sides(lines.draw(crossing, "Two", "x", "y", limits=(0, 3)))
    assert stands["long"] == ("left", -3) and stands["short"] != ("left", -3)
    at_the_end = lines.draw({"low": ([0, 1], [2.0, 0.0])}, "One", "x", "y", limits=(0, 3))
    assert sides(at_the_end)["low"] == ("left", -3) and places(at_the_end)["low"][1] > 0


def test_steps_are_whole_numbers():
    ticks = lines.draw({"loss": (range(1, 8), range(7))}, "Loss", "step", "loss").get_xticks()
    assert all(tick == round(tick) for tick in ticks)
    ticks = lines.draw({"loss": ([0.5, 1.25], [1, 2])}, "Loss", "rate", "loss").get_xticks()
    assert any(tick != round(tick) for tick in ticks)


def test_dots_of_a_curve_share_its_colour_and_others_have_a_name():
    dots = {"second": ([1], [4.1]), "third": ([0], [2.0])}
    axes = lines.draw(TWO, "Dots", "x", "y", dots=dots)
    _, curve, own, other = axes.lines
    assert own.get_color() == curve.get_color() != other.get_color()
    assert own.get_marker() != other.get_marker() and own.get_linestyle() == "None"
    assert sorted(places(axes)) == ["first", "second", "third"]


def test_a_name_keeps_its_looks_in_another_picture():
    axes = lines.draw(TWO, "Two", "x", "y", dots=TWO, looks={"second": 3})
    alone = lines.draw({"second": TWO["second"]}, "One", "x", "y", dots=TWO, looks={"second": 3})
    first, second, _, dots = axes.lines
    assert second.get_color() == dots.get_color() == lines.COLOURS[3] != first.get_color()
    assert second.get_linestyle() == alone.lines[0].get_linestyle() == lines.DASHES[3]
    assert dots.get_marker() == lines.MARKERS[3]


def test_a_line_leaves_the_picture_breaks_where_it_is_not_finite_and_is_named_where_last_seen():
    ys = torch.tensor([1.0, 2.0, torch.inf, 3.0, 50.0, torch.nan])
    axes = lines.draw({"up": (range(6), ys)}, "Cut", "x", "y", limits=(0, 10))
    assert str(axes.lines[0].get_ydata().tolist()) == "[1.0, 2.0, nan, 3.0, 50.0, nan]"
    at = axes.transAxes.inverted().transform(axes.transData.transform((3, 3)))
    assert places(axes)["up"] == pytest.approx(tuple(at))
    assert axes.get_ylim() == (0, 10)


def test_a_walk_that_blows_up_can_be_drawn():
    for log in "", "y":
        blown_up = {"": (range(3), [1.0, 1e200, 1e308])}
        lines.draw(blown_up, "Up", "x", "y", limits=(0.1, 10), log=log).figure.canvas.draw()


def test_scales_marks_and_words():
    axes = lines.draw(TWO, "The answer", "step", "loss (1)", marks={"limit": 1.5}, log="y")
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    assert axes.lines[-1].get_xdata() == [1.5, 1.5] and "limit" in places(axes)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss (1)")
    assert axes.get_title(loc="left") == "The answer"
