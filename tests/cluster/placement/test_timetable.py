"""Tasks wait for those before them and for what only one can use; the most urgent is first."""

import random

import pytest

from course.cluster.placement.timetable import Task, timetable


def test_tasks_on_two_devices_and_a_transfer_between_them():
    tasks = {
        "a": Task(2.0, ("left",), (), 3),
        "b": Task(1.0, ("left",), ("a",), 1),
        "a to right": Task(4.0, ("cable",), ("a",), 2, latency_s=0.5),
        "c": Task(1.0, ("right",), ("a to right",), 1),
        "d": Task(1.0, ("left",), ("c", "b"), 1),
    }
    assert timetable(tasks) == {
        "a": (0, 2), "b": (2, 3), "a to right": (2.5, 6.5), "c": (6.5, 7.5), "d": (7.5, 8.5),
    }  # fmt: skip


def test_the_most_urgent_of_several_is_first_and_nothing_is_stopped():
    tasks = {
        "soon": Task(3.0, ("device",), (), 1),
        "less": Task(1.0, ("device",), (), 5, latency_s=1.0),
        "urgent": Task(1.0, ("device",), (), 9, latency_s=1.0),
    }
    assert timetable(tasks) == {"soon": (0, 3), "urgent": (3, 4), "less": (4, 5)}


def test_what_needs_two_links_waits_for_both_and_lets_others_pass():
    tasks = {
        "first": Task(2.0, ("up",), (), 3),
        "both": Task(1.0, ("up", "down"), (), 2),
        "down": Task(3.0, ("down",), (), 1),
    }
    assert timetable(tasks) == {"first": (0, 2), "down": (0, 3), "both": (3, 4)}


def test_tasks_without_duration_pass_in_their_order():
    tasks = {"a": Task(0.0, ("x",), (), 1), "b": Task(0.0, ("x",), ("a",), 9),
             "c": Task(1.0, ("x",), ("b",), 1), "d": Task(0.0, ("x",), ("c",), 1)}  # fmt: skip
    assert [*timetable(tasks).items()] == [("a", (0, 0)), ("b", (0, 0)), ("c", (0, 1)),
                                           ("d", (1, 1))]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_random_tasks_keep_the_rules(seed):
    draw, tasks = random.Random(seed), {}
    for number in range(40):
        before = draw.sample(range(number), min(number, draw.randrange(3)))
        used = tuple(draw.sample("abcd", draw.choice((1, 1, 2))))
        latency = draw.choice((0.0, 0.0, 0.3))
        tasks[number] = Task(draw.choice((0.0, 0.5, 1.0)), used, tuple(before), draw.random(),
                             latency)  # fmt: skip
    spans = timetable(tasks)
    assert len(spans) == 40
    for name, (start, end) in spans.items():
        task = tasks[name]
        assert end == start + task.seconds
        ready = max((spans[before][1] for before in task.after), default=0.0) + task.latency_s
        assert start >= ready
        rivals = [spans[other] for other in spans if other != name
                  and {*task.resources} & {*tasks[other].resources}]  # fmt: skip
        assert all(end <= first or last <= start for first, last in rivals)
        # it has waited for something, or begins the moment that it is ready
        assert start == ready or any(last == start for _, last in rivals)
