"""A flow of control of an imagined rank, with a clock of its own, which the engine moves.

A context's clock may be ahead of the cluster's: it runs on until it waits for something.  All that
it does lies in the cluster's future, so nothing comes too late.
"""

import random

from course.worlds.simulator.coroutines import RankCoroutine
from course.worlds.simulator.log import NOTHING, pack_wait


class RankDied(BaseException):
    """The second has come at which this rank dies."""


class Processor:
    """What a rank computes on, and what it has computed; it takes `slowdown` times as long."""

    def __init__(self, device, slowdown, jitter, seed):
        self.device, self.slowdown, self.jitter = device, slowdown, jitter
        self.random, self.flops, self.computed_bytes = jitter and random.Random(seed), 0, 0

    def seconds(self, seconds) -> float:
        """How long it takes what would take so many seconds on its device."""
        if self.jitter:
            seconds *= 1 + self.jitter * self.random.expovariate(1)
        return seconds * self.slowdown


class Context:
    """Of a rank: its own program, or its calls in the background of that.

    `time` is its clock, `request` what it waits for in the call `operation` since `since`, `error`
    what it learns when it waits next, `waits` the log of its waits, `index` its number there.
    """

    __slots__ = ("simulation", "rank", "index", "processor", "dies_at", "time", "waits", "request",
                 "operation", "since", "error", "coroutine")  # fmt: skip

    def __init__(self, simulation, rank, index, processor, dies_at, body):
        self.simulation, self.rank, self.index = simulation, rank, index
        self.processor, self.dies_at, self.time, self.waits = processor, dies_at, 0.0, bytearray()
        self.request = self.operation = self.error = None
        self.since, self.coroutine = 0.0, RankCoroutine(simulation, body)

    def block(self, request, operation):
        """Let others run until `request` is done; `operation` says in words what that is.

        Raises what makes it impossible: CommTimeout, PeerLost, CommMismatch.
        """
        if self.error is None and request.error is None:
            self.request, self.operation, self.since = request, operation, self.time
            watchdog = self.simulation.watchdog
            if watchdog.ended:
                self.error = watchdog.peer_lost_error(self)
            if self.error is None:
                self.coroutine.pause()
            self.request = self.operation = None  # a handle, which would keep its tensor alive
        error, self.error = self.error or request.error, None
        if error:
            raise error

    def wait_until(self, time, cause):
        """Be idle until a time at which what `cause` says happened."""
        self.waits += pack_wait(self.time, time, cause)
        if time >= self.dies_at:
            self.live_until(time)
        self.time = time

    def live_until(self, time):
        """Move this clock on.  Raises RankDied if the rank does not live so long."""
        if time >= self.dies_at:
            self.time = max(self.time, self.dies_at)
            raise RankDied
        self.time = time

    def wake(self):
        """Go on: what was waited for is done, or has failed."""
        self.request = None
        self.simulation.ready.append(self)

    def fail(self, error, at):
        """Go on with `error` instead of what this context waits for."""
        if at > self.time:
            self.waits += pack_wait(self.time, at, NOTHING)
            self.time = at
        self.error = error
        self.wake()

    def die(self):
        """The second has come at which this rank dies."""
        if self.request is not None:
            self.fail(RankDied(), self.simulation.queue.now)

    def tell(self, error):
        """Learn of `error` now if this context waits, else when it waits next."""
        if self.request is None:
            self.error = error
        else:
            self.fail(error, self.simulation.queue.now)
