"""Flows over shared links: begin them, share every link fairly among them, end them.

The rates are max-min fair: no flow could go faster without slowing one that is no faster.  When a
flow begins or ends, only the flows that it shares links with, directly or through others, are
given new rates; a flow that has its links to itself is given its rate at once.
"""

import heapq

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
    """So many bytes on their way over a route; `bottleneck` is the link that sets its rate.

    `left` bytes were left at `since`; the last one is through at `due`.
    """

    __slots__ = (
        "flows", "message", "route", "left", "bottleneck", "rate", "began", "since", "due", "round"
    )  # fmt: skip

    def __init__(self, flows, message, route, nbytes):
        self.flows, self.message, self.route, self.left = flows, message, route, nbytes
        self.bottleneck, self.rate, self.round = route.bottleneck, 0.0, 0
        self.began = self.since = flows.queue.now
        self.due = None

    def happen(self):
        """The last byte is through."""
        flows = self.flows
        flows.remove(self)
        flows.receiver.arrive(self.message, self)


class Flows:
    """All flows under way; `receiver.arrive(message, flow)` is called when one has ended."""

    def __init__(self, queue, receiver):
        self.queue, self.receiver, self.changed, self.round = queue, receiver, {}, 0

    def begin(self, message, route, nbytes) -> Flow:
        """Let the bytes of a message flow from now on."""
        flow, alone = Flow(self, message, route, nbytes), True
        for link in route.links:
            if link.flows:
                alone = False
            link.flows[flow] = None
        if alone:
            flow.rate = rate = route.bottleneck.bytes_per_s
            flow.due = due = flow.began + nbytes / rate
            self.queue.schedule(due, flow)
        else:
            self.changed.update(dict.fromkeys(route.links))
        return flow

    def remove(self, flow):
        """Take a flow from its links, which leaves more of them to the others."""
        for link in flow.route.links:
            del link.flows[flow]
            if link.flows:
                self.changed[link] = None

    def cancel(self, flow):
        """Stop a flow on its way."""
        self.remove(flow)
        if flow.due is not None:
            self.queue.cancel(flow.due, flow)

    def recompute_rates(self):
        """Give new rates to all flows that the beginnings and ends since the last time concern.

        Progressive filling: the rates of all flows grow alike; the link with the smallest share for
        each of its flows is full first, and those flows have their rates.  Source: Bertsekas &
        Gallager, section 6.5.2.
        """
        self.round += 1
        links = self._concerned()
        for link in links:
            link.spare, link.unfixed = link.bytes_per_s, len(link.flows)
        order = [(link.spare / link.unfixed, n, link)
                 for n, link in enumerate(links) if link.unfixed]  # fmt: skip
        heapq.heapify(order)
        while order:
            share, n, link = heapq.heappop(order)
            if link.unfixed and link.spare / link.unfixed > share * ROUNDING:  # others got less
                heapq.heappush(order, (link.spare / link.unfixed, n, link))
            elif link.unfixed:
                self._fill(link, share)
        self.changed.clear()

    def _concerned(self) -> list:
        """The changed links, and all that share flows with them."""
        found = dict.fromkeys(self.changed)
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
        """The flows of a full link whose rates are not fixed yet get `share` of all their links."""
        for flow in full.flows:
            if flow.round != self.round:
                flow.round, flow.bottleneck = self.round, full
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
