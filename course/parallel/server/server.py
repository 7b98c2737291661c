"""Parameter server: some ranks keep the weights, the others compute gradients with them.

`serve` is what a server rank does until its clients have ended; what a client rank does is in
`client.py`.  Who waits for whom is in `staleness.py`, who keeps what in `shards.py`.

    plan = shard_plan(comm.size, servers=2, elements=...)
    if comm.rank in plan.servers:
        return serve(comm, plan, net, sgd(0.1), rule=bounded(2))
    with Client(comm, plan, net) as client:
        for x, y in batches:
            client.pull()
            loss(net(x), y).backward()
            client.push()

Source: Dean et al. 2012 (Downpour); Li et al. 2014 (parameter server).
"""

import torch

from course.parallel.flat_parameters import FlatParameters
from course.parallel.server.messages import (
    Push,
    Replies,
    Request,
    RequestHead,
    Tag,
    handle_requests,
    head,
)
from course.parallel.server.shard_state import ShardState
from course.parallel.server.shards import agree
from course.parallel.server.staleness import Pulled, ServerLog, synchronous


def serve(comm, plan, module, update, *, rule=None, scale=None, snapshots=None) -> ServerLog:
    """Keep this rank's shard of the parameters of `module` until all clients have ended.

    `update` is how a gradient changes it (`updates.py`; Downpour's is adagrad), `rule` (default:
    synchronous()) who waits for whom, `scale(staleness)` the factor of an update's rate.  With
    `snapshots` it saves its state, and begins with what is there: in step with the other servers
    where clients go together.

    A client that is lost is named in what this returns, and the others go on; its last push may
    have reached some of the servers only.  If a server is lost, each client says so and ends, and
    the other servers with them.  Snapshots take over: each client's `clock` is where it goes on.

    Cost: see `step_bytes`; each message is preceded by a short one.
    Raises ValueError for what cannot be, CommMismatch where the ranks' plans or models differ,
    CommTimeout when no client asks for anything, PeerLost if a rank is lost before all have begun.
    """
    if comm.rank not in plan.servers:
        raise ValueError(f"rank {comm.rank} is no server: those are {list(plan.servers)}")
    whole, number = FlatParameters(module).flat, plan.servers.index(comm.rank)
    agree(comm, plan, whole)
    rule, values = rule or synchronous(), whole[plan.shard(number)].clone()
    shard = ShardState(plan, number, values, update, scale, snapshots, rule.synchronous)
    return _Server(comm, shard, rule).run()


class _Server:
    """A shard, the clients that are still there, their pushes that wait to be applied, and since
    when their pulls wait to be answered."""

    def __init__(self, comm, shard, rule):
        self.comm, self.shard, self.rule = comm, shard, rule
        self.clients, self.lost = set(shard.plan.clients), []
        self.pushes, self.pulls, self.replies = [], {}, Replies(comm)
        self.applied, self.pulled = [], []

    def run(self) -> ServerLog:
        """Do what clients ask for until all have ended, save, and tell what has happened."""
        self.shard.restore()
        handle_requests(self.comm, self.clients, len(RequestHead._fields), self._dispatch)
        self.shard.save()
        done = self.applied, self.pulled, tuple(self.lost)
        return ServerLog(self.shard.values, self.shard.version, *done)

    def _dispatch(self, client, request, based, samples):
        """Take in what a client asks for, then do what it made possible."""
        if request == Request.FAIL:
            self._drop(client)
        else:
            self.replies.wait(client)
        if request == Request.PULL:
            self.pulls[client] = self.comm.clock()
        elif request == Request.PUSH:
            gradient = torch.empty_like(self.shard.values)
            self.comm.recv(gradient, client, Tag.DELTA)
            self.pushes.append(Push(client, based, samples, gradient))
        elif request == Request.STOP:
            self.clients.discard(client)
        self._advance()

    def _drop(self, client):
        """A client is lost: nobody waits for it any longer."""
        self.lost.append(client)
        self.clients.discard(client)
        self.pulls.pop(client, None)
        self.replies.settle([client])

    def _advance(self):
        """Apply what can be applied, then answer whom the rule allows to go on."""
        while batch := self._next_batch():
            self.applied += self.shard.apply(batch)
        for client in sorted(self.pulls):
            lead = self._clock(client) - min(map(self._clock, self.clients))
            if lead <= self.rule.max_lead:
                self._answer(client, lead, self.pulls.pop(client))

    def _next_batch(self) -> list[Push]:
        """The pushes that make the next update now.

        If clients go together: the first push of each of those that are behind, in their order,
        once all of them have pushed.  All are, unless one of them begins again after a loss.
        """
        if not self.rule.synchronous:
            return [self.pushes.pop(0)] if self.pushes else []
        counts = self.shard.counts
        least = min((counts[client] for client in self.clients), default=0)
        behind = {client for client in self.clients if counts[client] == least}
        firsts = {}
        for push in self.pushes:
            if push.client in behind or push.client not in self.clients:
                firsts.setdefault(push.client, push)
        if not behind <= firsts.keys():
            return []
        self.pushes = [push for push in self.pushes if push is not firsts.get(push.client)]
        return [firsts[client] for client in sorted(firsts)]

    def _clock(self, client) -> int:
        """How many times a client has pushed."""
        return self.shard.counts[client] + sum(push.client == client for push in self.pushes)

    def _answer(self, client, lead, since):
        """Send weights as they are now; they go while this server listens to others."""
        told = head(*self.shard.head(client))
        self.replies.send(client, {Tag.HEAD: told, Tag.VALUES: self.shard.values.clone()})
        waited_s = self.comm.clock() - since
        self.pulled.append(Pulled(client, self.shard.version, lead, waited_s))
