"""What will happen on an imagined cluster, in the order of time."""

import heapq


class Event:
    """That `call()` happens."""

    def __init__(self, call):
        self.happen = call


class EventQueue:
    """Events and their times; those of one time are in the order in which they were scheduled.

    An event is any object with a method `happen()`; so many `happened` so far.
    """

    def __init__(self):
        self.happened = 0
        self.now, self._times, self._events, self._batch = 0.0, [], {}, {}

    def schedule(self, time_s: float, event):
        """Let `event` happen at `time_s`."""
        events = self._events.get(time_s)
        if events is None:
            events = self._events[time_s] = {}
            heapq.heappush(self._times, time_s)
        events[event] = None

    def cancel(self, time_s: float, event):
        """Let `event` not happen at `time_s`, for which it was scheduled."""
        for events in (self._batch, self._events.get(time_s, {})):
            events.pop(event, None)

    @property
    def next_time(self) -> float | None:
        """The time of the next event; None if there is none."""
        while self._times and not self._events[self._times[0]]:  # they have been cancelled
            del self._events[heapq.heappop(self._times)]
        return self._times[0] if self._times else None

    def advance(self):
        """Move on to the time of the next event, and let all events of that time happen."""
        self.now = heapq.heappop(self._times)
        batch = self._batch = self._events.pop(self.now)
        for event in list(batch):
            if event in batch:
                self.happened += 1
                event.happen()
