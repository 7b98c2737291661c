"""The centre of elastic averaging on servers, each with a part: every worker pulls and pushes when
it likes (`ServedCentre`), and a server adds what arrives when it arrives (`serve_centre`).
"""

import torch

from course.parallel.flat_parameters import FlatParameters, broadcast_module
from course.parallel.server.messages import Replies, Request, Tag, handle_requests, head


class ServedCentre:
    """A centre whose parts are on the ranks `servers` of `comm`, as one of the workers, all other
    ranks, sees it.  A server adds what arrives when it arrives.

    Cost for a worker, n the weights' bytes: n to pull, n to push, one message a server each way and
    a word each, beside its own steps.  Raises PeerLost if a server was lost; a lost worker is not
    missed, but its last difference may have reached some of the servers only.
    """

    together = False

    def __init__(self, comm, servers):
        self.comm, self.servers = comm, _required_servers(comm, servers)
        if comm.rank in self.servers:
            raise ValueError(f"rank {comm.rank} is a server, which calls serve_centre(), no worker")
        self.workers, self.root = comm.size - len(self.servers), self.servers[0]
        self.pulling = self.pushing = None

    def start(self, x):
        """Begin at `x` [elements], the same on all ranks."""
        self.known = x.clone()
        self.parts = self.known.tensor_split(len(self.servers))

    def prefetch(self):
        """Let the centre come, beside this rank's own work; it is as old as this call."""
        self.pulling = self.comm.submit(_pull, Request.PULL, self.parts, self.servers)

    def pull(self) -> torch.Tensor:
        """The centre [elements] as last asked for, which is now if it was not before."""
        if self.pulling is None:
            self.prefetch()
        values, self.pulling = self.cached(), None
        return values

    def push(self, difference):
        """Add `difference` [elements], beside this rank's own work; leave it as it is."""
        parts = difference.tensor_split(len(self.servers))
        self.pushing = self.comm.submit(_push, parts, self.servers)

    def cached(self) -> torch.Tensor:
        """The centre [elements] as this worker knows it."""
        for begun in (self.pushing, self.pulling):
            if begun:
                begun.wait()
        return self.known

    def finish(self) -> torch.Tensor:
        """The centre [elements] once all workers have finished; nothing can be asked after it."""
        self.cached()
        self.comm.submit(_pull, Request.STOP, self.parts, self.servers).wait()
        return self.known


def serve_centre(comm, module, servers) -> torch.Tensor:
    """Keep this server's part of the centre until all workers have finished or were lost.

    The part [elements] is returned; `module` is like the workers', and that of the first server
    is where all begin.  Memory: a copy of the part for each worker, so that all can be answered
    at once.  Raises CommTimeout if no worker says a word for so long.
    """
    servers, x = _required_servers(comm, servers), FlatParameters(module).flat
    if comm.rank not in servers:
        raise ValueError(f"rank {comm.rank} is none of the servers {list(servers)}")
    broadcast_module(comm, module, servers[0])
    shard = x.tensor_split(len(servers))[servers.index(comm.rank)].clone()
    workers = {rank for rank in range(comm.size) if rank not in servers}
    comm.submit(_serve, shard, workers).wait()
    return shard


def overhead_s(pull_s, push_s, step_s, tau: int, prefetch: int) -> float:
    """Seconds that a worker with steps of `step_s` waits at each meeting with a served centre.

    What is pulled has the time of `prefetch` steps; before it the last push has to be through, so
    that none is waited for if both fit into `tau` steps.
    """
    return max(0.0, pull_s - prefetch * step_s, pull_s + push_s - tau * step_s)


def _pull(comm, request, parts, servers):
    """Ask all servers, to PULL or to STOP, and let their answers fill `parts`."""
    handles = [comm.irecv(part, server, Tag.VALUES) for part, server in zip(parts, servers)]
    handles += [comm.isend(head(request), server, Tag.HEAD) for server in servers]
    for handle in handles:
        handle.wait()


def _push(comm, parts, servers):
    handles = [comm.isend(head(Request.PUSH), server, Tag.HEAD) for server in servers]
    handles += [comm.isend(part, server, Tag.DELTA) for part, server in zip(parts, servers)]
    for handle in handles:
        handle.wait()


def _serve(comm, shard, workers: set):
    """Do what workers ask for, one after another, until each has finished or was lost."""
    delta, replies, finished = torch.empty_like(shard), Replies(comm), []

    def dispatch(worker, request):
        if request == Request.PULL:
            replies.send(worker, {Tag.VALUES: shard.clone()})
        elif request == Request.PUSH:
            comm.recv(delta, worker, Tag.DELTA)
            shard.add_(delta)
        else:
            workers.remove(worker)
            replies.settle([worker])
            finished.extend([worker] * (request == Request.STOP))

    handle_requests(comm, workers, 1, dispatch)
    for worker in finished:
        replies.send(worker, {Tag.VALUES: shard.clone()})
    replies.settle(finished)


def _required_servers(comm, servers) -> tuple:
    """`servers`, if they are some ranks but not all, none of them twice."""
    servers = tuple(servers)
    once = 0 < len(set(servers)) == len(servers) < comm.size
    if not once or set(servers) - set(range(comm.size)):
        raise ValueError(
            f"rank {comm.rank}: servers are some of the ranks 0 to {comm.size - 1}, each once, and "
            f"at least one rank is left to work: not {list(servers)}"
        )
    return servers
