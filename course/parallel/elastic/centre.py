"""The centre of elastic averaging, if all workers meet at once: on all ranks, or on one of them.

`served_centre.py` has the one that every worker meets when it likes.
"""

import torch

from course.collectives import all_reduce, broadcast, reduce
from course.comm.counts import required_count


class SynchronousCentre:
    """A centre that all ranks of `comm` move together; nobody waits for it before the next meeting.

    Every rank has a copy, and differences are summed by `reduce(comm, sum)`, unless the rank
    `server` keeps the centre, takes the sum in and tells the others.  Copies whose sums differ in
    rounding drift apart; every `resync_every` meetings they become that of rank 0.

    Cost of a meeting, n the weights' bytes: an all-reduce of n, or a reduce and a broadcast of n,
    beside the workers' steps; a re-synchronisation is a broadcast of n that all wait for.
    Raises PeerLost, at the next meeting, on all ranks that need one that was lost.
    """

    together, root = True, 0

    def __init__(self, comm, *, server=None, resync_every=None, reduce=all_reduce):
        if resync_every is not None:
            required_count(resync_every, "resync_every", comm.rank)
        if server is not None and server not in range(comm.size):
            ranks = f"the ranks are 0 to {comm.size - 1}"
            raise ValueError(f"rank {comm.rank}: rank {server!r} cannot keep the centre: {ranks}")
        self.comm, self.server, self.resync_every, self.reduce = comm, server, resync_every, reduce
        self.workers, self.meetings, self.begun = comm.size, 0, None

    def start(self, x):
        """Begin at `x` [elements], the same on all ranks."""
        self.known, self.sum = x.clone(), torch.empty_like(x)

    def prefetch(self):
        """Nothing: what the last meeting began is on its way already."""

    def pull(self) -> torch.Tensor:
        """The centre [elements] after the last meeting."""
        if self.begun:
            self.begun.wait()
            self.begun = None
            if self.server is None:
                self.known.add_(self.sum)
            if self.resync_every and self.meetings % self.resync_every == 0:
                broadcast(self.comm, self.known)
        return self.known

    def push(self, difference):
        """Add the sum of all ranks' `difference` [elements]."""
        self.sum.copy_(difference)
        self.meetings += 1
        if self.server is None:
            self.begun = self.comm.submit(self.reduce, self.sum)
        else:
            self.begun = self.comm.submit(_by_server, self.sum, self.known, self.server)

    def cached(self) -> torch.Tensor:
        """The centre [elements] as this worker knows it: after the last meeting."""
        return self.pull()

    def finish(self) -> torch.Tensor:
        """The centre [elements] after the last meeting of all."""
        return self.pull()


def _by_server(comm, total, centre, server):
    reduce(comm, total, "sum", server)
    if comm.rank == server:
        centre.add_(total)
    broadcast(comm, centre, server)
