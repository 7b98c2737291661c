"""Flows over shared links: begin them, share every link fairly among them, end them.

The rates are max-min fair: no flow could go faster without slowing one that is no faster.  When a
flow begins or ends, only the flows that it shares links with, directly or through others, are
given new rates; a flow that has its links to itself is given its rate at once.
"""

import heapq

from course.worlds.simulator.log import NO_FLOW

ROUNDING = 1 + 1e-12  # shares that differ by less are the same


class Link:
    """One direction of a cable or bus, and the flows over it.

    `spare` bytes a second and `unfixed` flows are left while rates are computed.
    """

    __slots__ = ("name", "latency_s", "bytes_per_s", "number", "flows", "spare", "unfixed")

    def __init__(self, name, latency_s, bytes_per_s, number=0):
        self.name, self.latency_s, self.bytes_per_s, self.flows = name, latency_s, bytes_per_s, {}
        self.number = number

    def __str__(self):
        return " → ".join(map(str, self.name))


NOWHERE = Link(("here", "here"), 0.0, float("inf"))


class Route:
    """The links between two devices, the sum of their latencies, the narrowest of them."""

    __slots__ = ("links", "latency_s", "bottleneck")

    def __init__(self, links):
        self.links, self.latency_s = tuple(links), sum(link.latency_s for link in links)
        self.bottleneck = min(links, key=lambda link: link.bytes_per_s, default=NOWHERE)


class Flow:
    """The bytes of something on their way over a `route`, since the second at which they `began`.

    `left` of them were left at `since`; `bottleneck` is the link that sets their `rate`.  At `due`
    the last one is through, and the queue calls `happen()`; before they begin, when they will.
    """

    __slots__ = ("route", "left", "bottleneck", "rate", "began", "since", "due")

    def __init__(self, route, nbytes, due):
        self.route, self.left, self.bottleneck = route, nbytes, route.bottleneck
        self.began, self.due = NO_FLOW, due


class Flows:
    """All flows under way."""

    def __init__(self, queue):
        self.queue, self.changed = queue, {}

    def begin(self, flow):
        """Let the bytes of a flow move from now on."""
        flow.began = flow.since = now = self.queue.now
        route, alone = flow.route, True
        for link in route.links:
            if link.flows:
                alone = False
            link.flows[flow] = None
        if alone:
            flow.rate = rate = route.bottleneck.bytes_per_s
            flow.due = due = now + flow.left / rate
            self.queue.schedule(due, flow)
        else:
            flow.rate, flow.due = 0.0, None
            self.changed.update(dict.fromkeys(route.links))

    def end(self, flow):
        """Take a flow from its links, which leaves more of them to the others."""
        for link in flow.route.links:
            flows = link.flows
            del flows[flow]
            if flows:
                self.changed[link] = None

    def cancel(self, flow):
        """Stop a flow on its way, or before it begins."""
        if flow.began != NO_FLOW:
            self.end(flow)
        if flow.due is not None:
            self.queue.cancel(flow.due, flow)

    def recompute_rates(self):
        """Give new rates to all flows that the beginnings and ends since the last time concern.

        Progressive filling: the rates of all flows grow alike; the link with the smallest share for
        each of its flows is full first, and those flows have their rates.  Source: Bertsekas &
        Gallager, section 6.5.2.
        """
        (links, flows), fixed = self._concerned(), set()
        for link in links:
            link.spare, link.unfixed = link.bytes_per_s, len(link.flows)
        order = [(link.spare / link.unfixed, n, link)
                 for n, link in enumerate(links) if link.unfixed]  # fmt: skip
        heapq.heapify(order)
        while len(fixed) < flows:  # the links that are left have none to fill
            share, n, link = heapq.heappop(order)
            if link.unfixed and link.spare / link.unfixed > share * ROUNDING:  # others got less
                heapq.heappush(order, (link.spare / link.unfixed, n, link))
            elif link.unfixed:
                self._fill(link, share, fixed)
        self.changed.clear()

    def _concerned(self) -> tuple:
        """The changed links and all that share flows with them, and how many flows these are."""
        found = dict.fromkeys(self.changed)
        todo, seen = list(found), set()
        while todo:
            for flow in todo.pop().flows:
                if flow not in seen:
                    seen.add(flow)
                    for link in flow.route.links:
                        if link not in found:
                            found[link] = None
                            todo.append(link)
        return list(found), len(seen)

    def _fill(self, full, share, fixed):
        """The flows of a full link whose rates are not fixed yet get `share` of all their links."""
        for flow in full.flows:
            if flow not in fixed:
                fixed.add(flow)
                flow.bottleneck = full
                for link in flow.route.links:
                    link.spare -= share
                    link.unfixed -= 1
                if share != flow.rate:
                    self._change(flow, share)

    def _change(self, flow, rate):
        now, before = self.queue.now, flow.due
        flow.left = max(0.0, flow.left - flow.rate * (now - flow.since))
        flow.since, flow.rate, flow.due = now, rate, now + flow.left / rate
        if flow.due != before:
            if before is not None:
                self.queue.cancel(before, flow)
            self.queue.schedule(flow.due, flow)
