"""A pod of nodes that read from one shared file system, imagined.

Assumed: a worker asks for a batch, waits until all of it has come, decodes it, and asks for the
next one when there is room in the queue.  Requests are served in the order in which they come,
each whole: opened by the servers of metadata, sent by those of data, carried by the link of the
node.  For every 90 reads there is a write, which takes as long (deck N: 90:1).  Nodes train each
by itself; where they wait for one another, the slowest sets the pace.
"""

import heapq
import math
from typing import NamedTuple

import numpy as np

from course.comm.counts import required_count

READS_PER_WRITE = 90  # deck N


class Store(NamedTuple):
    """A shared file system: files that it opens and bytes that it sends a second, to all nodes
    together, and bytes a second on the link of one node."""

    name: str
    opens_per_s: float
    bytes_per_s: float
    node_bytes_per_s: float
    source: str


class Demand(NamedTuple):
    """What a step of one node needs: files to open, bytes, seconds of one worker to decode them,
    seconds of computing."""

    opens: float
    nbytes: float
    decode_s: float
    compute_s: float

    def missed(self, share: float) -> "Demand":
        """Of which only `share` is not in a cache of the node."""
        return self._replace(opens=self.opens * share, nbytes=self.nbytes * share)


class Fed(NamedTuple):
    """A step of one node: when its batch was asked for and was ready, when computing began and
    ended, in seconds."""

    asked_s: float
    ready_s: float
    begin_s: float
    end_s: float


def step_limits_s(demand: Demand, store: Store, nodes: int, workers: int) -> dict:
    """{what: seconds that a step takes at least, in the long run, because of it}: the largest
    counts, and where it is not computing the GPU starves."""
    required_count(nodes, "the number of nodes")
    required_count(workers, "the number of workers")
    opening, sending, link = _service_s(demand, store)
    return {
        "opening files": nodes * opening,
        "bytes of the store": nodes * sending,
        "link of a node": link,
        "workers": (opening + sending + link + demand.decode_s) / workers,
        "computing": demand.compute_s,
    }


def feed(demand: Demand, store: Store, nodes: int = 1, steps: int = 100, *, workers: int = 4,
         depth=None, jitter: float = 0.0, seed: int = 0) -> list:  # fmt: skip
    """The `Fed` steps [nodes][steps] that follow from what is assumed above.

    `depth`: how many batches a node is ahead, as in `Loader` (default: two a worker); `jitter`: the
    mean of a random part, in seconds, of each decoding.  Raises ValueError for what cannot be.
    """
    depth = 2 * workers if depth is None else depth
    for of, count in (("nodes", nodes), ("steps", steps), ("workers", workers), ("batches", depth)):
        required_count(count, f"the number of {of}")
    if not 0 <= jitter < math.inf:
        raise ValueError(f"the jitter is a number of seconds, 0 or more, not {jitter}")
    random_s = np.random.default_rng(seed).exponential(jitter, (nodes, steps))
    queues = [_Queue(node, steps, workers, depth) for node in range(nodes)]
    stations = _Stations(demand, store, nodes)
    events = [event for queue in queues for event in queue.requests(0.0)]
    heapq.heapify(events)
    while events:
        now, batch, node, asked = heapq.heappop(events)
        if asked is None:
            ready = stations.serve(now, node) + demand.decode_s + random_s[node, batch]
            heapq.heappush(events, (ready, batch, node, now))
        else:
            queues[node].arrived(batch, asked, now, demand.compute_s)
            for event in queues[node].requests(now):
                heapq.heappush(events, event)
    return [queue.fed for queue in queues]


def waiting_share(steps: list) -> float:
    """The part of the time, from the first of a node's `Fed` steps on, in which its GPU waits."""
    computing = sum(step.end_s - step.begin_s for step in steps)
    whole = steps[-1].end_s - steps[0].begin_s
    return 1 - computing / whole if whole else 0.0


class _Stations:
    """Where a request has to pass, one after the other, and since when each is free."""

    def __init__(self, demand, store, nodes):
        self.service_s = _service_s(demand, store)
        self.opening = self.sending = 0.0
        self.links = [0.0] * nodes

    def serve(self, now, node) -> float:
        """When the batch that `node` asks for now has come."""
        opening, sending, link = self.service_s
        self.opening = max(now, self.opening) + opening
        self.sending = max(self.opening, self.sending) + sending
        self.links[node] = max(self.sending, self.links[node]) + link
        return self.links[node]


class _Queue:
    """The batches of one node: what its workers may ask for, and the steps that were fed."""

    def __init__(self, node, steps, workers, depth):
        self.node, self.steps, self.idle, self.depth = node, steps, workers, depth
        self.asked, self.ready, self.fed = 0, {}, []

    def requests(self, now):
        """The batches that idle workers ask for: (when, batch, node, None).

        There is room for a batch when the step `depth` + 1 before it has ended.
        """
        while self.idle and self.asked < self.steps and self.asked - self.depth <= len(self.fed):
            before = self.asked - self.depth - 1
            room = self.fed[before].end_s if before >= 0 else 0.0
            yield max(now, room), self.asked, self.node, None
            self.idle -= 1
            self.asked += 1

    def arrived(self, batch, asked, now, compute_s):
        """A batch is ready; the GPU takes what is, in order."""
        self.idle += 1
        self.ready[batch] = asked, now
        while len(self.fed) in self.ready:
            asked, ready = self.ready.pop(len(self.fed))
            begin = max(ready, self.fed[-1].end_s if self.fed else 0.0)
            self.fed.append(Fed(asked, ready, begin, begin + compute_s))


def _service_s(demand, store):
    """Seconds of a request at the servers of metadata, at those of data, on the link."""
    if not (all(0 <= x < math.inf for x in demand) and all(x > 0 for x in store[1:-1])):
        raise ValueError(
            "a demand is 0 or more, and what a store does a second above 0, "
            f"not {demand} of {store}"
        )
    of_reads = 1 + 1 / READS_PER_WRITE
    return (of_reads * demand.opens / store.opens_per_s,
            of_reads * demand.nbytes / store.bytes_per_s,
            demand.nbytes / store.node_bytes_per_s)  # fmt: skip
