"""Following a run until it is settled: its values, or which rank failed first and why."""

import linecache
import os
import signal
import textwrap
import time

from course.comm.errors import PeerLost
from course.worlds.console import Printer
from course.worlds.cores import cores
from course.worlds.pickling import Failure, unpack

GRACE_S = 1.0  # after a first failure, for the other ranks to say what it did to them
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


class Supervisor:
    """What has been heard of each rank of a run."""

    def __init__(self, ranks: int, printer):
        self.ranks, self.printer = ranks, printer
        self.results, self.failures, self.stacks, self.events = {}, {}, {}, []

    @property
    def unfinished(self) -> list:
        return [r for r in range(self.ranks) if r not in self.results and r not in self.failures]

    def until_settled(self, workers, grace_s):
        """Listen until every rank has returned or failed, or one has failed `grace_s` ago."""
        while self.unfinished and not self.failures:
            self.handle(workers.poll())
        self._listen(workers, grace_s, lambda: self.unfinished)
        for rank in self.unfinished:
            workers.request_stack(rank)
        self._listen(workers, STACK_S, lambda: set(self.unfinished) - self.stacks.keys())

    def _listen(self, workers, seconds, wanting):
        deadline = time.monotonic() + seconds
        while wanting() and (left := deadline - time.monotonic()) > 0:
            self.handle(workers.poll(min(left, LOOK_S)))

    def handle(self, news, *, stopped=False):
        """Take in what workers said; `stopped`: ranks that end now were ended by the launcher."""
        for rank, kind, value in sorted(news, key=lambda entry: entry[1] == "ended"):
            if kind in ("out", "err"):
                self.printer.show(rank, kind, value)
            elif kind == "result":
                self.results[rank], events = value
                self.events += events
            elif kind == "failure":
                self.failures[rank], events = value
                self.events += events
            elif kind == "stack":
                self.stacks[rank] = value
            elif kind == "ended" and rank in self.unfinished and not stopped:
                self.failures[rank] = death(rank, value)

    def values(self) -> list:
        """What the ranks returned.  Raises RankError if one failed."""
        if self.failures:
            raise self.error()
        return [unpack(self.results[rank]) for rank in range(self.ranks)]

    def error(self) -> RankError:
        """The failure that came first among those that are not the consequence of another."""
        first = min(self.failures.values(), key=lambda f: (f.severity, f.when))
        message = f"rank {first.rank} failed: {first.sentence}\n\n"
        if first.trace:
            message += textwrap.indent(first.text(), "  ") + "\n\n"
        for rank, failure in sorted(self.failures.items()):
            if rank != first.rank:
                message += f"rank {rank}: {failure.sentence}\n"
        running = {rank: location(self.stacks.get(rank)) for rank in self.unfinished}
        for rank, where in running.items():
            message += f"rank {rank} was still running{where}\n"
        return RankError(
            message.rstrip(),
            rank=first.rank,
            exception=unpack(first.exception),
            stack=first.stack(),
            failures={rank: failure.sentence for rank, failure in sorted(self.failures.items())},
            values={rank: unpack(value) for rank, value in sorted(self.results.items())},
            running=running,
        )


def supervise(
    workers, call: bytes, world: bytes, ranks: int, *, trace, live, grace_s=GRACE_S
) -> list:
    """The values of a packed call on the ranks of `workers`, each of which joins the `world` first,
    by a packed call that makes its communicator."""
    job = {"call": call, "world": world, "threads": max(1, cores() // ranks)}
    watch = Supervisor(ranks, Printer(ranks, live))
    try:
        workers.start([job] * ranks)
        watch.until_settled(workers, grace_s)
    finally:
        watch.handle(workers.stop(), stopped=True)
        watch.printer.finish()
    if trace is not None:
        trace.add(ranks, watch.events)
    return watch.values()


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
