"""Following a run until it is settled: its values, or which rank failed first and why."""

import linecache
import math
import os
import pickle
import signal
import textwrap
import time

from course.comm.errors import CommError, PeerLost, listed
from course.worlds.console import Printer
from course.worlds.cores import threads
from course.worlds.pickling import CONSEQUENCES, Failure, pack, unpack, unpack_or_none

GRACE_S = 1.0  # after a first failure, for the other ranks to say what it did to them
START_S = 60.0  # for all ranks to have begun, torch read from a slow disk included
LOOK_S = 60.0  # how long to listen at once: the selector takes no infinite time
LAST = len(CONSEQUENCES) + 1
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
    """What has been heard of each rank of a run; `called`: how a rank is named to the user."""

    def __init__(self, ranks: int, printer, called="rank {}".format):
        self.ranks, self.printer, self.called = ranks, printer, called
        self.results, self.failures, self.stacks, self.events = {}, {}, {}, []
        self.started = set()

    @property
    def unfinished(self) -> list:
        return [r for r in range(self.ranks) if r not in self.results and r not in self.failures]

    def until_settled(self, workers, grace_s, limit):
        """Listen until every rank has returned or failed, or one has failed `grace_s` ago, or all
        started `limit` seconds ago; then ask where the others are."""
        self._listen(workers, START_S, lambda: self._waiting() and not self.failures)
        if (late := self._waiting()) and not self.failures:
            raise CommError(f"{listed(late)} had not started after {START_S:g} s")
        self._listen(workers, limit, lambda: self.unfinished and not self.failures)
        if self.failures:
            self._listen(workers, grace_s, lambda: self.unfinished)
        self.locate(workers)

    def _waiting(self):
        return set(self.unfinished) - self.started

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
            elif kind in ("result", "failure"):
                said = self.results if kind == "result" else self.failures
                said[rank], events = value
                self.events += events
            elif kind == "started":
                self.started.add(rank)
            elif kind == "stack":
                self.stacks[rank] = value
            elif kind == "ended" and rank in self.unfinished:
                self.failures[rank] = death(rank, value)

    def values(self, limit=None) -> list:
        """What the ranks returned.  Raises RankError if one failed, RunTimeout if one still ran."""
        values = self._unpacked()
        said = {
            "failures": {rank: each.sentence for rank, each in sorted(self.failures.items())},
            "values": values,
            "running": {rank: location(self.stacks.get(rank)) for rank in self.unfinished},
        }
        if self.failures:
            raise self.error(said)
        if self.unfinished:
            message = f"the run was not over after {limit:g} s\n\n" + "\n".join(self.progress())
            raise RunTimeout(message, rank=None, exception=None, stack=[], **said)
        return list(values.values())

    def _unpacked(self) -> dict:
        """{rank: what it returned}; what cannot be unpacked is a failure, behind all others."""
        values = {}
        for rank, packed in sorted(self.results.items()):
            try:
                values[rank] = unpack(packed)
            except ValueError as error:
                sentence, exception = f"what it returned {error}", Failure.of(rank, error).exception
                self.failures[rank] = Failure(rank, math.inf, LAST, sentence, exception=exception)
        return values

    def error(self, said) -> RankError:
        """The failure that came first among those that are not the consequence of another."""
        first = min(self.failures.values(), key=lambda f: (f.severity, f.when))
        message = f"{self.called(first.rank)} failed: {first.sentence}\n\n"
        if first.trace:
            message += textwrap.indent(first.text(), "  ") + "\n\n"
        message += "\n".join(self.progress(but=first.rank))
        where = {"exception": unpack_or_none(first.exception), "stack": list(first.stack)}
        return RankError(message.rstrip(), rank=first.rank, **where, **said)

    def progress(self, but=None):
        """A sentence for each rank that has failed, but one, and for each that still runs."""
        for rank, failure in sorted(self.failures.items()):
            if rank != but:
                yield f"{self.called(rank)}: {failure.sentence}"
        for rank in self.unfinished:
            yield f"{self.called(rank)} was still running{location(self.stacks.get(rank))}"


def supervise(
    workers, call: bytes, ranks: int, join, place: dict, *,
    timeout, limit, checked, trace, live, grace_s=GRACE_S,
) -> list:  # fmt: skip
    """The values of a packed call on `ranks` ranks of `workers`, each of which joins its world
    first: `join(rank, fds, timeout=, checked=, traced=, **place)` makes its communicator of the
    open files that it has.  Raises RankError, and CommError if ranks cannot start."""
    __tracebackhide__ = True
    supervisor = Supervisor(ranks, Printer(ranks, live), workers.called)
    settings = {"timeout": timeout, "checked": checked, "traced": trace is not None}
    try:
        world = pack(join, (), place | settings)
        job = {"call": pickle.PickleBuffer(call), "world": world, "threads": threads(ranks)}
        workers.start(job, ranks)
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
    how = f"was ended by {signal_name(-code)}" if code < 0 else f"exited with status {code}"
    hint = " (out of memory?)" if -code == signal.SIGKILL else ""
    error = PeerLost(f"rank {rank} {how} before its function had returned{hint}")
    return Failure.of(rank, error)._replace(severity=0, trace=None)


def signal_name(number: int) -> str:
    """What a signal is called; real-time signals have numbers only."""
    return {kind.value: kind.name for kind in signal.Signals}.get(number, f"signal {number}")


def location(stack) -> str:
    """The innermost place of a stack [(file, line, function), ...] in words."""
    if not stack:
        return ""
    file, line, function = stack[-1]
    source = linecache.getline(file, line).strip()
    return f", in {function}, line {line}" + (f": {source}" if source else "")
