"""What happened on an imagined cluster: how busy its links were, what its ranks waited for, and why
it took as long as it did."""

import bisect
import json
from typing import NamedTuple

from course.comm.post import Message

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
        self._ranks, self.messages = cluster.ranks, cluster.post.messages
        self.seconds = max(rank.time for rank in cluster.ranks)
        for rank in cluster.ranks:
            rank.cluster = rank.fibre = rank.request = rank.doing = rank.trouble = None
            rank.outgoing.clear()

    @property
    def ranks(self) -> list[RankUse]:
        return [
            RankUse(r.rank, r.time, sum(end - start for start, end, _ in r.holds), r.flops,
                    r.computed_bytes, r.meter.sent_bytes)
            for r in self._ranks
        ]  # fmt: skip

    @property
    def links(self) -> list[LinkUse]:
        """Of all links that carried something, the busiest first."""
        by_link = {}
        for message in self.messages:
            if message.began is not None and message.came is not None:
                for link in message.route.links:
                    by_link.setdefault(link, []).append(message)
        uses = [self._use(link, messages) for link, messages in by_link.items()]
        return sorted(uses, key=lambda use: -use.utilisation)

    def _use(self, link, messages) -> LinkUse:
        nbytes, busy_s, until = sum(m.nbytes for m in messages), 0.0, 0.0
        for message in sorted(messages, key=lambda m: m.began):
            busy_s += max(0.0, message.came - max(message.began, until))
            until = max(until, message.came)
        return LinkUse(str(link), nbytes, busy_s, nbytes / link.bytes_per_s / self.seconds)

    def why(self) -> list[Reason]:
        """The longest chain: what the last rank to end had waited for, and what that had waited
        for, back to the beginning.  Its parts follow one another without a gap."""
        here = max(self._ranks, key=lambda rank: rank.time)
        time, chain = here.time, []
        while time > 0:
            held = bisect.bisect_right(here.holds, time, key=lambda hold: hold[1]) - 1
            hold = here.holds[held] if held >= 0 else (0.0, 0.0, None)
            chain.append(Reason(hold[1], time, here.rank, f"rank {here.rank} computes"))
            here, time = self._behind(here, *hold, chain)
        return [reason for reason in reversed(chain) if reason.end > reason.start]

    def _behind(self, here, start, end, cause, chain):
        """The rank, and its time, that a hold leads to; what lies between is put on the chain."""
        if cause is None:
            chain.append(Reason(start, end, here.rank, f"rank {here.rank} waits in vain"))
            return here, start
        if not isinstance(cause, Message):
            return cause, end
        if end > cause.came:  # it waited to be received
            return cause.receive.owner, end
        if cause.began is not None:
            link = f"link {cause.bottleneck}"
            chain.append(Reason(cause.began, cause.came, cause.dst.rank, link))
        sent = cause.sent
        on_the_way = cause.came if cause.began is None else cause.began
        chain.append(Reason(sent, on_the_way, cause.dst.rank, "latency"))
        return cause.src, sent

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
        events = [event for rank in self._ranks for event in _of_rank(rank)]
        names = {}
        for message in self.messages:
            if message.began is not None and message.came is not None:
                for link in message.route.links:
                    row = names.setdefault(str(link), len(names))
                    name = f"{message.src.rank} → {message.dst.rank}"
                    times = message.began, message.came
                    events.append(_span(name, 1, row, *times, bytes=message.nbytes))
        events += [_name("thread_name", 1, row, name) for name, row in names.items()]
        events += [
            _name("process_name", pid, 0, name) for pid, name in enumerate(("ranks", "links"))
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)


def _of_rank(rank):
    """Computing and waiting of one rank, as events."""
    before = 0.0
    for start, end, cause in [*rank.holds, (rank.time, rank.time, None)]:
        if start > before:
            yield _span("computes", 0, rank.rank, before, start)
        if end > start:
            yield _span(f"waits for {_named(cause, rank)}", 0, rank.rank, start, end)
        before = end


def _named(cause, rank) -> str:
    """What a rank waited for, in words."""
    if cause is None:
        return "what never came"
    if isinstance(cause, Message) and cause.src is not rank:
        return f"rank {cause.src.rank}, {cause.bottleneck}"
    if isinstance(cause, Message):
        return f"its message to rank {cause.dst.rank}, {cause.bottleneck}"
    return f"rank {cause.rank}"


def _span(name, pid, row, start, end, **details) -> dict:
    return {"name": name, "cat": name.split()[0], "ph": "X", "pid": pid, "tid": row,
            "ts": start * MICRO, "dur": (end - start) * MICRO, "args": details}  # fmt: skip


def _name(what, pid, row, name) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": row, "args": {"name": name}}
