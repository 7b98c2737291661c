"""Following a run until it is settled: its values, or which rank failed first and why."""

import linecache
import math
import os
import signal
import textwrap
import time

from course.comm.errors import PeerLost
from course.worlds.console import Printer
from course.worlds.cores import cores
from course.worlds.pickling import Failure, unpack

GRACE_S = 1.0  # after a first failure, for the other ranks to say what it did to them
START_S = 60.0  # for all ranks to have begun, torch read from a slow disk included
LOOK_S = 60.0  # how long to listen at once: the selector takes no infinite time
STACK_S = 0.5  # for a rank that still runs to say where it is


class RankError(RuntimeError):
    """A run failed: `rank` is the one that failed first, `exception` what it raised (None if that
    could not travel) and `stack` where, outermost first, as (file, line, function); `failures`
    says of each failed rank what it raised, `values` of each that returned what, `running` of
    each other one where it still was."""

    def __init__(self, message, *, rank, exception, stack, failures, values, running):
        super().__init__(message)
        self.rank, self.exception, self.stack = rank, exception, stack
        self.failures, self.values, self.running = failures, values, running


class RunTimeout(RankError):
    """A run was not over after its limit, though no rank had failed: `rank` is None."""


class Supervisor:
    """What has been heard of each rank of a run."""

    def __init__(self, ranks: int, printer):
        self.ranks, self.printer = ranks, printer
        self.results, self.failures, self.stacks, self.events = {}, {}, {}, []
        self.started = set()

    @property
    def unfinished(self) -> list:
        return [r for r in range(self.ranks) if r not in self.results and r not in self.failures]

    def until_settled(self, workers, grace_s, limit):
        """Listen until every rank has returned or failed, or one has failed `grace_s` ago, or all
        started `limit` seconds ago; then ask where the others are."""
        self._listen(workers, START_S, lambda: len(self.started) < self.ranks and not self.failures)
        self._listen(workers, limit, lambda: self.unfinished and not self.failures)
        if self.failures:
            self._listen(workers, grace_s, lambda: self.unfinished)
        self.locate(workers)

    def locate(self, workers):
        """Ask the ranks that still run where they are."""
        asked = self.started.intersection(self.unfinished)
        for rank in asked:
            workers.request_stack(rank)
        self._listen(workers, STACK_S, lambda: asked.intersection(self.unfinished) - {*self.stacks})

    def _listen(self, workers, seconds, wanting):
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while wanting() and (left := deadline - time.monotonic()) > 0:
            self.handle(workers.poll(min(left, LOOK_S)))

    def handle(self, news):
        """Take in what workers said."""
        for rank, kind, value in sorted(news, key=lambda entry: entry[1] == "ended"):
            if kind in ("out", "err"):
                self.printer.show(rank, kind, value)
            elif kind == "result":
                self.results[rank], events = value
                self.events += events
            elif kind == "failure":
                self.failures[rank], events = value
                self.events += events
            elif kind == "started":
                self.started.add(rank)
            elif kind == "stack":
                self.stacks[rank] = value
            elif kind == "ended" and rank in self.unfinished:
                self.failures[rank] = death(rank, value)

    def values(self, limit=None) -> list:
        """What the ranks returned.  Raises RankError if one failed, RunTimeout if one still ran."""
        if self.failures:
            raise self.error()
        if self.unfinished:
            message = f"the run was not over after {limit:g} s\n\n" + "\n".join(self.progress())
            raise RunTimeout(message, rank=None, exception=None, stack=[], **self._said())
        return [unpack(self.results[rank]) for rank in range(self.ranks)]

    def error(self) -> RankError:
        """The failure that came first among those that are not the consequence of another."""
        first = min(self.failures.values(), key=lambda f: (f.severity, f.when))
        message = f"rank {first.rank} failed: {first.sentence}\n\n"
        if first.trace:
            message += textwrap.indent(first.text(), "  ") + "\n\n"
        message += "\n".join(line for line in self.progress(but=first.rank))
        return RankError(
            message.rstrip(),
            rank=first.rank,
            exception=unpack(first.exception),
            stack=first.stack(),
            **self._said(),
        )

    def progress(self, but=None):
        """A sentence for each rank that has failed, but one, and for each that still runs."""
        for rank, failure in sorted(self.failures.items()):
            if rank != but:
                yield f"rank {rank}: {failure.sentence}"
        for rank in self.unfinished:
            yield f"rank {rank} was still running{location(self.stacks.get(rank))}"

    def _said(self) -> dict:
        """By rank: what the failed ones raised, the others returned, or where they still are."""
        failures = {rank: failure.sentence for rank, failure in sorted(self.failures.items())}
        values = {rank: unpack(value) for rank, value in sorted(self.results.items())}
        running = {rank: location(self.stacks.get(rank)) for rank in self.unfinished}
        return {"failures": failures, "values": values, "running": running}


def supervise(
    workers, call: bytes, world: bytes, ranks: int, *, trace, live, limit=None, grace_s=GRACE_S
) -> list:
    """The values of a packed call on the ranks of `workers`, each of which joins the `world` first,
    by a packed call that makes its communicator."""
    __tracebackhide__ = True
    job = {"call": call, "world": world, "threads": max(1, cores() // ranks)}
    supervisor = Supervisor(ranks, Printer(ranks, live))
    try:
        workers.start([job] * ranks)
        supervisor.until_settled(workers, grace_s, limit)
    except KeyboardInterrupt:
        supervisor.locate(workers)
        where = "\n".join(["the run was interrupted", "", *supervisor.progress()])
        raise KeyboardInterrupt(where) from None
    finally:
        printed = ("out", "err")  # all else that ranks say now is a consequence of their end
        supervisor.handle(entry for entry in workers.stop() if entry[1] in printed)
        supervisor.printer.finish()
    if trace is not None:
        trace.add(ranks, supervisor.events)
    return supervisor.values(limit)


def death(rank: int, status: int) -> Failure:
    """The failure of a rank that ended without a word."""
    code = os.waitstatus_to_exitcode(status)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
    error = PeerLost(f"rank {rank} {how} before its function had returned")
    return Failure.of(rank, error)._replace(severity=0, trace=None)


def location(stack) -> str:
    """The innermost place of a stack [(file, line, function), ...] in words."""
    if not stack:
        return ""
    file, line, function = stack[-1]
    source = linecache.getline(file, line).strip()
    return f", in {function}, line {line}" + (f": {source}" if source else "")
