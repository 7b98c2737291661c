"""What happened on an imagined cluster: how busy its links were, what its ranks waited for, and why
it took as long as it did."""

import json
from typing import NamedTuple

import numpy

from course.worlds.simulator.flows import NEVER
from course.worlds.simulator.log import HOLD, NOTHING, course_of

MICRO = 1e6


class RankUse(NamedTuple):
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


class LinkUse(NamedTuple):
    """What one direction of a link has carried; `busy_s` with at least one flow on it, and
    `utilisation` of what it could have carried in the whole run."""

    link: str
    bytes: int
    busy_s: float
    utilisation: float


class Reason(NamedTuple):
    """A part of the longest chain through a run: what took these seconds, and on which rank the
    chain was."""

    start: float
    end: float
    rank: int
    what: str


class Record:
    """Of one run, in seconds of its cluster."""

    def __init__(self, cluster):
        self._courses, self._count = cluster.courses, len(cluster.ranks)
        self._routes, self._messages = cluster.routes, cluster.ledger.messages
        self._holds = [numpy.frombuffer(course.holds, HOLD) for course in self._courses]
        self.seconds = max(course.time for course in self._courses)
        for course in self._courses:
            course.cluster = course.fibre = course.request = course.doing = course.trouble = None
            course.outgoing.clear()

    @property
    def ranks(self) -> list[RankUse]:
        return [
            RankUse(r.rank, r.time, float((holds["end"] - holds["start"]).sum()), r.flops,
                    r.computed_bytes, r.meter.sent_bytes)
            for r, holds in zip(self._courses[: self._count], self._holds)
        ]  # fmt: skip

    @property
    def links(self) -> list[LinkUse]:
        """Of all links that carried something, the busiest first."""
        uses = [self._use(link, messages) for link, messages in self._by_link()]
        return sorted(uses, key=lambda use: -use.utilisation)

    def _by_link(self):
        """Every link that carried something, with its messages."""
        carried = self._messages[self._messages["began"] != NEVER]
        pairs, which = numpy.unique(carried[["src", "dst"]], return_inverse=True)
        rows = numpy.split(numpy.argsort(which, kind="stable"), numpy.cumsum(numpy.bincount(which)))
        by_link = {}
        for (src, dst), messages in zip(pairs, rows):
            for link in self._route(src, dst).links:
                by_link.setdefault(link, []).append(messages)
        return [(link, carried[numpy.concatenate(rows)]) for link, rows in by_link.items()]

    def _route(self, src, dst):
        return self._routes.route(self._courses[src].place, self._courses[dst].place)

    def _use(self, link, messages) -> LinkUse:
        messages = messages[numpy.argsort(messages["began"], kind="stable")]
        nbytes, came = int(messages["bytes"].sum()), messages["came"]
        until = numpy.maximum.accumulate(numpy.concatenate([[0.0], came[:-1]]))
        busy = numpy.maximum(came - numpy.maximum(messages["began"], until), 0.0)
        use = nbytes / link.bytes_per_s / self.seconds
        return LinkUse(str(link), nbytes, float(busy.sum()), use)

    def why(self) -> list[Reason]:
        """The longest chain: what the last rank to end had waited for, and what that had waited
        for, back to the beginning.  Its parts follow one another without a gap."""
        here = max(self._courses, key=lambda rank: rank.time).number
        time, chain = self._courses[here].time, []
        while time > 0:
            held = numpy.searchsorted(self._holds[here]["end"], time, side="right") - 1
            hold = self._holds[here][held].item() if held >= 0 else (0.0, 0.0, NOTHING)
            rank = self._courses[here].rank
            chain.append(Reason(hold[1], time, rank, f"rank {rank} computes"))
            here, time = self._behind(here, *hold, chain)
        return [reason for reason in reversed(chain) if reason.end > reason.start]

    def _behind(self, here, start, end, cause, chain):
        """The course of events, and its time, that a hold leads to; what lies between is put on
        the chain."""
        rank = self._courses[here].rank
        if cause == NOTHING:
            chain.append(Reason(start, end, rank, f"rank {rank} waits in vain"))
            return here, start
        if cause < 0:
            return course_of(cause), end
        src, dst, bottleneck, _, sent, began, came = self._messages[cause].item()
        if end > came:  # it waited to be received
            return dst, end
        rank = self._courses[dst].rank
        if began != NEVER:
            chain.append(Reason(began, came, rank, f"link {self._routes.named(bottleneck)}"))
        chain.append(Reason(sent, came if began == NEVER else began, rank, "latency"))
        return src, sent

    def reasons(self) -> dict:
        """Seconds of the longest chain by what took them, the most first; they add up to
        `seconds`."""
        total = {}
        for reason in self.why():
            total[reason.what] = total.get(reason.what, 0.0) + reason.end - reason.start
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def save(self, path):
        """Write Chrome trace JSON for Perfetto: ranks that compute and wait, links and what is on
        them."""
        events = [event for rank in range(len(self._courses)) for event in self._of_rank(rank)]
        names = {}
        for link, messages in self._by_link():
            row = names.setdefault(str(link), len(names))
            for src, dst, _, nbytes, _, began, came in messages.tolist():
                name = f"{self._courses[src].rank} → {self._courses[dst].rank}"
                events.append(_span(name, 1, row, began, came, bytes=nbytes))
        events += [_name("thread_name", 1, row, name) for name, row in names.items()]
        events += [
            _name("process_name", pid, 0, name) for pid, name in enumerate(("ranks", "links"))
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)

    def _of_rank(self, course):
        """Computing and waiting of one rank, as events."""
        before, rank = 0.0, self._courses[course]
        for start, end, cause in [*self._holds[course].tolist(), (rank.time, rank.time, NOTHING)]:
            if start > before:
                yield _span("computes", 0, course, before, start)
            if end > start:
                yield _span(f"waits for {self._named(cause, rank)}", 0, course, start, end)
            before = end

    def _named(self, cause, rank) -> str:
        """What a rank waited for, in words."""
        if cause == NOTHING:
            return "what never came"
        if cause < 0:
            return f"rank {self._courses[course_of(cause)].rank}"
        src, dst, bottleneck, *_ = self._messages[cause].item()
        src, dst = self._courses[src].rank, self._courses[dst].rank
        which = f"rank {src}" if src != rank.rank else f"its message to rank {dst}"
        return f"{which}, {self._routes.named(bottleneck)}"


def _span(name, pid, row, start, end, **details) -> dict:
    return {"name": name, "cat": name.split()[0], "ph": "X", "pid": pid, "tid": row,
            "ts": start * MICRO, "dur": (end - start) * MICRO, "args": details}  # fmt: skip


def _name(what, pid, row, name) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": row, "args": {"name": name}}
