"""The timeline of a placed graph has its schedule's times, in lanes of devices and of pairs."""

import pytest

from course.classroom.drawings import placement
from course.cluster.placement.schedule import Schedule, Span, Transfer

PLACED = Schedule(None, {}, [
    Span("a", "gpu 1", 0.0, 0.002), Span("b", "gpu 0", 0.005, 0.006),
    Span("view", "gpu 0", 0.006, 0.006), Span("c", "gpu 1", 0.002, 0.004),
], [Transfer("a", "gpu 1", "gpu 0", 1, 8, 0.003, 0.005)])  # fmt: skip


def test_bars_are_where_the_times_are():
    axes = placement.draw(PLACED, "two devices")
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == ["gpu 0", "gpu 1", "gpu 1 → gpu 0"]
    found = [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width())
             for b in axes.patches]  # fmt: skip
    wanted = [(0, 5, 1), (1, 0, 2), (1, 2, 2), (2, 3, 2)]
    assert sorted(found) == [pytest.approx(bar) for bar in wanted]
    assert sorted(text.get_text() for text in axes.texts) == ["a", "a", "b", "c"]
    assert axes.get_xlabel() == "time (ms), simulated"


def test_computing_and_sending_have_two_colours_that_the_key_names():
    axes = placement.draw(PLACED, "two devices")
    colours = {round(bar.get_y() + bar.get_height() / 2): bar.get_facecolor()
               for bar in axes.patches}  # fmt: skip
    keys = {text.get_text(): patch.get_facecolor() for text, patch in
            zip(axes.get_legend().texts, axes.get_legend().get_patches(), strict=True)}  # fmt: skip
    assert keys == {"computes": colours[0], "sends": colours[2]} and len(set(keys.values())) == 2
    assert colours[0] == colours[1]


def test_times_have_the_unit_that_is_asked_for():
    axes = placement.draw(PLACED, "two devices", "time (s)", unit_s=1.0)
    assert max(bar.get_x() + bar.get_width() for bar in axes.patches) == pytest.approx(0.006)
