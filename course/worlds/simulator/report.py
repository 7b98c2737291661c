"""What happened on an imagined cluster: how busy its links were, what its ranks waited for, and why
it took as long as it did."""

import json
from typing import NamedTuple

import numpy

from course.worlds.simulator.log import NO_FLOW, NOTHING, WAIT, decode_cause

MICRO = 1e6


class RankUsage(NamedTuple):
    """How one rank spent its seconds, and what it computed and sent."""

    rank: int
    seconds: float
    waiting_s: float
    flops: float
    computed_bytes: int
    sent_bytes: int

    @property
    def computing_s(self) -> float:
        return self.seconds - self.waiting_s


class LinkUsage(NamedTuple):
    """What one direction of a link has carried; `busy_s` with at least one flow on it, and
    `utilisation` of what it could have carried in the whole run."""

    link: str
    bytes: int
    busy_s: float
    utilisation: float


class Segment(NamedTuple):
    """A part of the critical path: what took these seconds, and on which rank the path was."""

    start: float
    end: float
    rank: int
    cause: str


class Timeline(NamedTuple):
    """Of a context, the seconds that it lived and its waits, as `log.WAIT` has them."""

    rank: int
    seconds: float
    waits: numpy.ndarray


class RunReport:
    """Of one run, in seconds of its cluster.

    `ranks`: how each spent its time; `events_per_s`: how many events the simulation came by in a
    second of real time, of which it took `real_s`.  The order of timelines is that of contexts in
    the log.
    """

    def __init__(self, simulation, real_s: float):
        self.events, self.real_s = simulation.queue.happened, real_s
        self._routes, self._placement = simulation.world.routes, simulation.world.placement
        self._messages = simulation.matcher.log.messages
        self._timelines = [
            Timeline(context.rank, context.time, numpy.frombuffer(context.waits, WAIT))
            for context in simulation.contexts
        ]
        self.seconds = max(timeline.seconds for timeline in self._timelines)
        ends = zip(self._timelines, simulation.contexts, simulation.transports)
        self.ranks = [_usage(line, context.processor, end.meter) for line, context, end in ends]

    @property
    def events_per_s(self) -> float:
        return self.events / self.real_s

    @property
    def links(self) -> list[LinkUsage]:
        """Of all links that carried something, the busiest first."""
        uses = [self._use(link, messages) for link, messages in self._by_link()]
        return sorted(uses, key=lambda use: -use.utilisation)

    def _by_link(self):
        """Every link that carried something, with its messages."""
        carried = self._messages[self._messages["began"] != NO_FLOW]
        pairs, which = numpy.unique(carried[["src", "dst"]], return_inverse=True)
        rows = numpy.split(numpy.argsort(which, kind="stable"), numpy.cumsum(numpy.bincount(which)))
        by_link = {}
        for (src, dst), messages in zip(pairs, rows):
            for link in self._route(src, dst).links:
                by_link.setdefault(link, []).append(messages)
        return [(link, carried[numpy.concatenate(rows)]) for link, rows in by_link.items()]

    def _rank(self, context) -> int:
        return self._timelines[context].rank

    def _route(self, src, dst):
        src, dst = (self._placement[self._rank(context)] for context in (src, dst))
        return self._routes.route(src, dst)

    def _use(self, link, messages) -> LinkUsage:
        messages = messages[numpy.argsort(messages["began"], kind="stable")]
        nbytes, came = int(messages["bytes"].sum()), messages["came"]
        until = numpy.maximum.accumulate(numpy.concatenate([[0.0], came[:-1]]))
        busy = numpy.maximum(came - numpy.maximum(messages["began"], until), 0.0)
        use = nbytes / link.bytes_per_s / self.seconds
        return LinkUsage(str(link), nbytes, float(busy.sum()), use)

    def critical_path(self) -> list[Segment]:
        """What the last rank to end had waited for, and what that had waited for, back to the
        beginning.  Its segments follow one another without a gap."""
        here = max(range(len(self._timelines)), key=lambda n: self._timelines[n].seconds)
        time, path = self._timelines[here].seconds, []
        while time > 0:
            waits, rank = self._timelines[here].waits, self._rank(here)
            last = numpy.searchsorted(waits["end"], time, side="right") - 1
            wait = waits[last].item() if last >= 0 else (0.0, 0.0, NOTHING)
            path.append(Segment(wait[1], time, rank, f"rank {rank} computes"))
            here, time = self._behind(here, *wait, path)
        return [segment for segment in reversed(path) if segment.end > segment.start]

    def _behind(self, here, start, end, cause, path):
        """The context, and its time, that a wait leads back to; what lies between is added to the
        path."""
        rank = self._rank(here)
        if cause == NOTHING:
            path.append(Segment(start, end, rank, f"rank {rank} waits in vain"))
            return here, start
        if cause < 0:
            return decode_cause(cause), end
        src, dst, bottleneck, _, sent, began, came = self._messages[cause].item()
        if end > came:  # it waited to be received
            return dst, end
        rank = self._rank(dst)
        if began != NO_FLOW:
            path.append(Segment(began, came, rank, f"link {self._routes.named(bottleneck)}"))
        path.append(Segment(sent, came if began == NO_FLOW else began, rank, "latency"))
        return src, sent

    def critical_path_by_cause(self) -> dict:
        """Seconds of the critical path by what took them, the most first; they add up to
        `seconds`."""
        total = {}
        for segment in self.critical_path():
            seconds = segment.end - segment.start
            total[segment.cause] = total.get(segment.cause, 0.0) + seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def save(self, path):
        """Write Chrome trace JSON for Perfetto: ranks that compute and wait, links and what is on
        them."""
        events = [event for row in range(len(self._timelines)) for event in self._of_context(row)]
        names = {}
        for link, messages in self._by_link():
            row = names.setdefault(str(link), len(names))
            for src, dst, _, nbytes, _, began, came in messages.tolist():
                name = f"{self._rank(src)} → {self._rank(dst)}"
                events.append(_span(name, 1, row, began, came, bytes=nbytes))
        events += [_name("thread_name", 1, row, name) for name, row in names.items()]
        events += [
            _name("process_name", pid, 0, name) for pid, name in enumerate(("ranks", "links"))
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)

    def _of_context(self, row):
        """Computing and waiting in one context, as events."""
        before, (rank, seconds, waits) = 0.0, self._timelines[row]
        for start, end, cause in [*waits.tolist(), (seconds, seconds, NOTHING)]:
            if start > before:
                yield _span("computes", 0, row, before, start)
            if end > start:
                yield _span(f"waits for {self._named(cause, rank)}", 0, row, start, end)
            before = end

    def _named(self, cause, rank) -> str:
        """What a rank waited for, in words."""
        if cause == NOTHING:
            return "what never came"
        if cause < 0:
            return f"rank {self._rank(decode_cause(cause))}"
        src, dst, bottleneck, *_ = self._messages[cause].item()
        src, dst = self._rank(src), self._rank(dst)
        which = f"rank {src}" if src != rank else f"its message to rank {dst}"
        return f"{which}, {self._routes.named(bottleneck)}"


def _usage(timeline, processor, meter) -> RankUsage:
    waiting_s = float((timeline.waits["end"] - timeline.waits["start"]).sum())
    return RankUsage(timeline.rank, timeline.seconds, waiting_s, processor.flops,
                     processor.computed_bytes, meter.sent_bytes)  # fmt: skip


def _span(name, pid, row, start, end, **details) -> dict:
    return {"name": name, "cat": name.split()[0], "ph": "X", "pid": pid, "tid": row,
            "ts": start * MICRO, "dur": (end - start) * MICRO, "args": details}  # fmt: skip


def _name(what, pid, row, name) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": row, "args": {"name": name}}
