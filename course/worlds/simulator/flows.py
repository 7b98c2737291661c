"""Flows over shared links: start them, share every link fairly among them, learn when they end.

The rates are max-min fair: no flow could go faster without slowing one that is no faster.  When a
flow begins or ends, only the flows that it shares links with, directly or through others, are
given new rates; a flow that has its links to itself is given its rate at once.
"""

import heapq
from typing import NamedTuple

NEVER = -1.0
ROUNDING = 1 + 1e-12  # shares that differ by less are the same


class Agenda:
    """What will happen, in the order of time; what happens at the same time, in that of asking."""

    def __init__(self):
        self.now, self.times, self.acts = 0.0, [], {}

    def at(self, time_s: float, act, what):
        """Call `act(what)` at `time_s`, unless `what.entry` is another time by then."""
        acts = self.acts.get(time_s)
        if acts is None:
            acts = self.acts[time_s] = []
            heapq.heappush(self.times, time_s)
        acts.append((act, what))

    def advance(self):
        """Move on to the next time at which something happens, and let all of it happen."""
        self.now = now = heapq.heappop(self.times)
        for act, what in self.acts.pop(now):
            if what.entry is None or what.entry == now:  # else it was put off
                act(what)


class Link:
    """One direction of a cable or bus."""

    __slots__ = ("name", "latency_s", "bytes_per_s", "number", "flows", "room", "open")

    def __init__(self, name, latency_s, bytes_per_s, number=0):
        self.name, self.latency_s, self.bytes_per_s, self.flows = name, latency_s, bytes_per_s, {}
        self.number = number

    def __str__(self):
        return " → ".join(map(str, self.name))


NOWHERE = Link(("here", "here"), 0.0, float("inf"))


class Route(NamedTuple):
    """The links between two devices, their latencies together, the narrowest of them."""

    links: tuple
    latency_s: float
    narrowest: Link

    @classmethod
    def over(cls, links):
        narrowest = min(links, key=lambda link: link.bytes_per_s, default=NOWHERE)
        return cls(tuple(links), sum(link.latency_s for link in links), narrowest)


class Flow:
    """So many bytes on their way over a route; `bottleneck` is the link that sets its rate."""

    rate, entry, began, settled = 0.0, None, NEVER, 0

    def __init__(self, route, nbytes):
        self.route, self.left, self.bottleneck = route, nbytes, route.narrowest


class Flows:
    """All flows under way; `ended(flow)` is called when the last byte of one is through."""

    def __init__(self, agenda, ended):
        self.agenda, self.ended, self.touched, self.round = agenda, ended, {}, 0

    def begin(self, flow):
        """Let the bytes flow from now on."""
        flow.began = flow.since = now = self.agenda.now
        alone = True
        for link in flow.route[0]:
            if link.flows:
                alone = False
            link.flows[flow] = None
        if alone:
            flow.rate = rate = flow.bottleneck.bytes_per_s
            flow.entry = end = now + flow.left / rate
            self.agenda.at(end, self.end, flow)
        else:
            flow.entry = NEVER
            self.touched.update(dict.fromkeys(flow.route.links))

    def end(self, flow):
        flow.entry = NEVER
        self.drop(flow)
        self.ended(flow)

    def drop(self, flow):
        """Take a flow from its links, which leaves more of them to the others."""
        for link in flow.route[0]:
            del link.flows[flow]
            if link.flows:
                self.touched[link] = None

    def settle(self):
        """Give new rates to all flows that the beginnings and ends since the last time concern.

        Water rises in all their links; the link with the smallest share for each of its flows is
        full first, and those flows have their rates.  Source: Bertsekas & Gallager, section 6.5.2.
        """
        self.round += 1
        links = self._concerned()
        for link in links:
            link.room, link.open = link.bytes_per_s, len(link.flows)
        order = [(link.room / link.open, n, link) for n, link in enumerate(links) if link.open]
        heapq.heapify(order)
        while order:
            share, n, link = heapq.heappop(order)
            if link.open and link.room / link.open > share * ROUNDING:  # its other flows got less
                heapq.heappush(order, (link.room / link.open, n, link))
            elif link.open:
                self._fill(link, share)
        self.touched.clear()

    def _concerned(self) -> list:
        """The touched links, and all that share flows with them."""
        found = dict.fromkeys(self.touched)
        todo, seen = list(found), set()
        while todo:
            for flow in todo.pop().flows:
                if flow not in seen:
                    seen.add(flow)
                    fresh = [link for link in flow.route.links if link not in found]
                    found.update(dict.fromkeys(fresh))
                    todo += fresh
        return list(found)

    def _fill(self, full, share):
        """The open flows of a full link get `share` of all their links."""
        for flow in full.flows:
            if flow.settled != self.round:
                flow.settled, flow.bottleneck = self.round, full
                for link in flow.route.links:
                    link.room -= share
                    link.open -= 1
                if share != flow.rate:
                    self._change(flow, share)

    def _change(self, flow, rate):
        now = self.agenda.now
        flow.left = max(0.0, flow.left - flow.rate * (now - flow.since))
        flow.since, flow.rate = now, rate
        flow.entry = now + flow.left / rate
        self.agenda.at(flow.entry, self.end, flow)
