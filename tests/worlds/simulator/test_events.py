"""Events happen in the order of their times, then in that in which they were scheduled."""

import random

from course.worlds.simulator.events import EventQueue


class Event:
    def __init__(self, queue, seen, then=None):
        self.queue, self.seen, self.then = queue, seen, then

    def happen(self):
        self.seen.append((self.queue.now, self))
        if self.then:
            self.then()


def run(queue):
    while queue.next_time is not None:
        queue.advance()


def test_what_happens_at_one_time_happens_in_the_order_of_scheduling():
    queue, seen = EventQueue(), []
    events = [Event(queue, seen) for _ in range(4)]
    for time_s, event in zip((2.0, 1.0, 1.0, 2.0), events):
        queue.schedule(time_s, event)
    assert queue.next_time == 1.0
    queue.advance()
    assert seen == [(1.0, events[1]), (1.0, events[2])] and queue.now == 1.0
    run(queue)
    assert seen[2:] == [(2.0, events[0]), (2.0, events[3])]


def test_a_cancelled_event_never_happens_and_its_time_does_not_come():
    queue, seen = EventQueue(), []
    early, late = Event(queue, seen), Event(queue, seen)
    queue.schedule(1.0, early)
    queue.schedule(3.0, late)
    queue.cancel(1.0, early)
    assert queue.next_time == 3.0
    queue.advance()
    assert seen == [(3.0, late)] and queue.next_time is None


def test_an_event_may_cancel_another_one_of_its_time_and_schedule_more():
    queue, seen = EventQueue(), []
    victim, again = Event(queue, seen), Event(queue, seen)

    def act():
        queue.cancel(1.0, victim)
        queue.schedule(1.0, again)

    first = Event(queue, seen, then=act)
    queue.schedule(1.0, first)
    queue.schedule(1.0, victim)
    run(queue)
    assert seen == [(1.0, first), (1.0, again)]


def test_random_schedules_and_cancellations_against_a_sorted_list():
    draw = random.Random(7)
    for _ in range(20):
        queue, seen, expected = EventQueue(), [], []
        events = [(draw.randrange(5) / 2, number, Event(queue, seen)) for number in range(30)]
        for time_s, _, event in events:
            queue.schedule(time_s, event)
        for time_s, number, event in events:
            if draw.random() < 0.4:
                queue.cancel(time_s, event)
            else:
                expected.append((time_s, number, event))
        run(queue)
        assert seen == [(time_s, event) for time_s, _, event in sorted(expected)]


def test_what_has_happened_is_counted():
    queue, seen = EventQueue(), []
    events = [Event(queue, seen) for _ in range(4)]
    for time, event in zip((1.0, 1.0, 2.0, 3.0), events):
        queue.schedule(time, event)
    queue.cancel(3.0, events[-1])
    run(queue)
    assert queue.happened == len(seen) == 3
