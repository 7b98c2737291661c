"""When tasks begin and end that wait for one another and share what only one can use at a time."""

import heapq
from typing import NamedTuple

DONE, READY = 0, 1  # what ends at a moment makes room for what is ready at it


class Task(NamedTuple):
    """`seconds` of all `resources`, once the tasks `after` are done and `latency_s` later; of
    several that are ready, the one of highest `priority` is first."""

    seconds: float
    resources: tuple
    after: tuple
    priority: float
    latency_s: float = 0.0


def timetable(tasks) -> dict:
    """{name: (start, end)} of `tasks` {name: Task}, in the order in which they begin.

    What is ready and finds all its resources free begins, though something more urgent be on its
    way, and nothing stops it.
    """
    return _Clock(tasks).spans()


class _Clock:
    """`events` [(second, kind, number of a task)] to come, `ready` [(-priority, number)] tasks."""

    def __init__(self, tasks):
        self.names, self.tasks = [*tasks], [*tasks.values()]
        numbers = {name: number for number, name in enumerate(self.names)}
        self.then, self.left = [[] for _ in self.tasks], [len(task.after) for task in self.tasks]
        self.events, self.ready, self.busy, self.begun = [], [], set(), {}
        for number, task in enumerate(self.tasks):
            for before in task.after:
                self.then[numbers[before]].append(number)

    def spans(self) -> dict:
        for number, count in enumerate(self.left):
            if not count:
                self._await(0.0, number)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, number = heapq.heappop(self.events)
                if kind == READY:
                    heapq.heappush(self.ready, (-self.tasks[number].priority, number))
                else:
                    self._end(now, number)
            self._begin(now)
        return self.begun

    def _await(self, now, number):
        heapq.heappush(self.events, (now + self.tasks[number].latency_s, READY, number))

    def _end(self, now, number):
        self.busy.difference_update(self.tasks[number].resources)
        for other in self.then[number]:
            self.left[other] -= 1
            if not self.left[other]:
                self._await(now, other)

    def _begin(self, now):
        """All that is ready and has room, the most urgent first."""
        waiting = []
        while self.ready:
            entry = heapq.heappop(self.ready)
            task = self.tasks[entry[1]]
            if self.busy.isdisjoint(task.resources):
                self.busy.update(task.resources)
                self.begun[self.names[entry[1]]] = now, now + task.seconds
                heapq.heappush(self.events, (now + task.seconds, DONE, entry[1]))
            else:
                waiting.append(entry)
        self.ready = waiting  # in order, so that it is a heap
