import pytest

from course.classroom.drawings import waste as drawing
from course.cluster.failover.interval import optimal, waste

NUMBERS = 300, 31_536, 600


def drawn(**more):
    axes = drawing.draw(*NUMBERS, "The answer", **more)
    return axes, {line.get_label(): line.get_xydata() for line in axes.lines}


def test_the_model_is_lowest_at_the_mark():
    axes, found = drawn()
    curve = found["model"]
    assert curve[40, 1] == pytest.approx(100 * waste(60 * curve[40, 0], *NUMBERS))
    lowest = curve[curve[:, 1].argmin(), 0]
    mark = axes.lines[-1].get_xdata()[0]
    assert mark == pytest.approx(optimal(*NUMBERS[:2]) / 60)
    assert lowest == pytest.approx(mark, rel=0.05)
    assert (found["first order"][:, 1] > curve[:, 1]).all()


def test_jobs_are_dots_at_their_interval_in_per_cent():
    _, found = drawn(jobs={600: [0.3, 0.2], 6000: [0.1]})
    assert found["simulated jobs"].tolist() == [[10, 20], [10, 30], [100, 10]]
    assert "simulated jobs" not in drawn()[1]


def test_axes_say_what_they_are_and_minutes_are_plain_numbers():
    axes, _ = drawn()
    assert axes.get_xlabel() == "minutes of work between two saves"
    assert axes.get_ylabel() == "waste (% of the time)"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["10", "20", "50", "100", "200"]
    assert axes.get_title(loc="left") == "The answer"
