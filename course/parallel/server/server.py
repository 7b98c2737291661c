"""Parameter server: some ranks keep the weights, the others compute gradients with them.

`serve` is what a server rank does until its clients have ended; what a client rank does is in
`client.py`.  The rules, who waits for whom, are in `staleness.py`, the cut in `shards.py`.

    plan = cut(comm.size, servers=2, elements=...)
    if comm.rank in plan.servers:
        return serve(comm, plan, net, sgd(0.1), rule=bounded(2))
    with Client(comm, plan, net) as client:
        for x, y in batches:
            client.pull()
            loss(net(x), y).backward()
            client.push()

Source: Dean et al. 2012 (Downpour); Li et al. 2014 (parameter server).
"""

import contextlib
from collections import Counter
from enum import IntEnum
from typing import NamedTuple

import torch

from course.comm import ANY, PeerLost
from course.comm.communicator import LAST_TAG
from course.parallel.flat_parameters import FlatParameters
from course.parallel.server.shards import join
from course.parallel.server.staleness import Applied, Pulled, Served, synchronous

NEVER = -1  # there is no snapshot yet


class Tag(IntEnum):
    """Of the messages between clients and servers; out of the way of a program's own tags."""

    ASK, GRADIENT, ANSWER, WEIGHTS = range(LAST_TAG - 3, LAST_TAG + 1)


class Want(IntEnum):
    """What a client asks a server for."""

    PULL, PUSH, STOP, FAIL = range(4)


class Push(NamedTuple):
    """A gradient [elements of the shard] of so many samples, of weights of version `based`."""

    client: int
    based: int
    samples: int
    gradient: torch.Tensor


def serve(comm, plan, module, update, *, rule=None, scale=None, snapshots=None) -> Served:
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
    server = _Server(comm, plan, module, update, rule or synchronous(), scale, snapshots)
    join(comm, plan, server.whole)
    server.begin()
    while server.living:
        server.hear()
    return server.end()


class _Server:
    """A shard, who is still there, what waits to be applied, and who waits for weights."""

    def __init__(self, comm, plan, module, update, rule, scale, snapshots):
        if comm.rank not in plan.servers:
            raise ValueError(f"rank {comm.rank} is no server: those are {list(plan.servers)}")
        self.comm, self.plan, self.rule, self.scale = comm, plan, rule, scale
        self.number, self.snapshots = plan.servers.index(comm.rank), snapshots
        self.whole = FlatParameters(module).flat
        self.shard = self.whole[plan.shard(self.number)].clone()
        self.update, self.kept = update, {}
        self.version, self.saved, self.saved_counts = 0, NEVER, {}
        self.living, self.lost, self.counts = set(plan.clients), [], Counter()
        self.waiting, self.asking, self.replies = [], {}, {}
        self.applied, self.pulled = [], []

    def begin(self):
        """Take over what was saved, if anything was; nobody saves before all servers have."""
        shards, saved = len(self.plan.servers), self.snapshots
        version = saved and saved.newest(self.number, shards, common=self.rule.together)
        if version is None:
            return
        state = saved.load(self.number, shards, version)
        if state["bounds"] != list(self.plan.bounds):
            raise ValueError(
                f"rank {self.comm.rank}: the snapshots in {saved.folder} are of shards with "
                f"bounds {state['bounds']}, not {list(self.plan.bounds)}"
            )
        self.shard, self.kept = state["values"], state["kept"]
        self.version = self.saved = version
        self.counts, self.saved_counts = Counter(state["counts"]), state["counts"]

    def hear(self):
        """Take in what the next client wants."""
        head = torch.empty(3, dtype=torch.long, device="cpu")
        try:
            client = self.comm.recv(head, ANY, Tag.ASK)
            for handle in self.replies.pop(client, ()):
                handle.wait()
            self._do(client, *head.tolist())
        except PeerLost as error:
            self._part({self.comm.members.index(member) for member in error.ranks})
        self._advance()

    def end(self) -> Served:
        """All clients have ended: save once more, and tell what has happened."""
        if self.snapshots is not None and self.saved != self.version:
            self._save()
        return Served(self.shard, self.version, self.applied, self.pulled, tuple(self.lost))

    def _do(self, client, kind, based, samples):
        if kind == Want.PULL:
            self.asking[client] = self.comm.clock()
        elif kind == Want.PUSH:
            gradient = torch.empty_like(self.shard)
            self.comm.recv(gradient, client, Tag.GRADIENT)
            self.waiting.append(Push(client, based, samples, gradient))
        elif kind == Want.FAIL:
            self._part({client})
        else:
            self.living.discard(client)

    def _part(self, ranks):
        """These ranks are lost; of servers the clients will tell."""
        gone = sorted(ranks & self.living)
        self.lost += gone
        self.living -= ranks
        for client in gone:
            self.asking.pop(client, None)
            for handle in self.replies.pop(client, ()):
                with contextlib.suppress(PeerLost):
                    handle.wait()

    def _advance(self):
        """Apply what can be applied, then answer whom the rule allows to go on."""
        while pushes := self._due():
            self._apply(pushes)
        for client in sorted(self.asking):
            ahead = self._clock(client) - min(map(self._clock, self.living))
            if ahead <= self.rule.ahead:
                self._answer(client, ahead, self.asking.pop(client))

    def _due(self) -> list[Push]:
        """What makes the next update now.

        If clients go together: the first push of each of those that are behind, in their order,
        once all of them have pushed.  All are, unless one of them begins again after a loss.
        """
        if not self.rule.together:
            return [self.waiting.pop(0)] if self.waiting else []
        least = min((self.counts[client] for client in self.living), default=0)
        behind = {client for client in self.living if self.counts[client] == least}
        firsts = {}
        for push in self.waiting:
            if push.client in behind or push.client not in self.living:
                firsts.setdefault(push.client, push)
        if not behind <= firsts.keys():
            return []
        self.waiting = [push for push in self.waiting if push is not firsts.get(push.client)]
        return [firsts[client] for client in sorted(firsts)]

    def _clock(self, client) -> int:
        """How many times a client has pushed."""
        return self.counts[client] + sum(push.client == client for push in self.waiting)

    def _apply(self, pushes):
        """One update, with the mean over the samples of all these pushes."""
        samples = sum(push.samples for push in pushes)
        if samples:
            parts = [push.gradient * (push.samples / samples) for push in pushes if push.samples]
            staleness = max(self.version - push.based for push in pushes)
            factor = self.scale(staleness) if self.scale else 1
            self.update(self.shard, sum(parts[1:], parts[0]), self.kept, factor)
        for push in pushes:
            self.applied.append(Applied(push.client, push.based, self.version))
            self.counts[push.client] += 1
        self.version += 1
        if self.snapshots is not None and self.snapshots.due(self.version):
            self._save()

    def _answer(self, client, ahead, since):
        """Send weights as they are now; they go while this server listens to others."""
        counts = self.counts[client], self.saved, self.saved_counts.get(client, 0)
        head = torch.tensor([self.version, *counts], device="cpu")
        weights = self.shard.clone()
        self.replies[client] = [
            self.comm.isend(head, client, Tag.ANSWER),
            self.comm.isend(weights, client, Tag.WEIGHTS),
        ]
        waited_s = self.comm.clock() - since
        self.pulled.append(Pulled(client, self.version, ahead, waited_s))

    def _save(self):
        state = {"version": self.version, "bounds": list(self.plan.bounds),
                 "values": self.shard, "kept": self.kept, "counts": dict(self.counts)}  # fmt: skip
        self.snapshots.save(self.number, len(self.plan.servers), state)
        self.saved, self.saved_counts = self.version, dict(self.counts)
