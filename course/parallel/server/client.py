"""A client of a parameter server: pull weights, compute a gradient, push it."""

import contextlib
from numbers import Real

import torch

from course.comm import PeerLost
from course.comm.counts import required_count
from course.parallel.flat_parameters import FlatParameters
from course.parallel.server.messages import NEVER, ReplyHead, Request, RequestHead, Tag, head
from course.parallel.server.shards import agree


class Client:
    """This rank's side of the servers that keep the parameters of `module`; see `server.py`.

    Every `n_fetch`-th `pull` fetches, every `n_push`-th `push` sends what has gathered: the number
    of pushes times the mean gradient over all their samples.  With `rate` the client steps by
    itself meanwhile, w <- w - rate g, and what it sends is the sum of rate g: its own change of the
    weights, for servers that only add (SGD at rate 1).

    `versions` says for each shard which version it has, `clock` how many of this client's pushes
    the servers have got, earlier runs included.  At the end of its `with` block it sends what has
    gathered and takes its leave; the servers name it as lost if that ends with an error.
    Raises ValueError for what cannot be, CommMismatch where the ranks' plans or models differ.
    """

    def __init__(self, comm, plan, module, *, n_push=1, n_fetch=1, rate=None):
        if comm.rank not in plan.clients:
            raise ValueError(f"rank {comm.rank} is no client: those are {list(plan.clients)}")
        self.n_push = required_count(n_push, "n_push", comm.rank)
        self.n_fetch = required_count(n_fetch, "n_fetch", comm.rank)
        if rate is not None and not (isinstance(rate, Real) and rate > 0):
            raise ValueError(f"rank {comm.rank}: a client's own rate is above 0, not {rate!r}")
        self.comm, self.plan, self.rate = comm, plan, rate
        self.weights = FlatParameters(module)
        self.gradients = torch.zeros_like(self.weights.flat)
        self.pulls = self.pushes = self.samples = 0
        self.heads, self.stopped = {}, False
        agree(comm, plan, self.weights.flat)

    @property
    def versions(self) -> dict[int, int]:
        return {number: told.version for number, told in self.heads.items()}

    @property
    def clock(self) -> int:
        return min((told.pushes for told in self.heads.values()), default=0)

    def pull(self):
        """Let the module have the servers' weights: every `n_fetch`-th time, the first included.

        Blocks until the servers' rule lets this client go on.
        Cost: W values from the servers, a shard from each, all under way at once.
        Raises PeerLost that names a lost server and what its last snapshot has; CommTimeout;
        RuntimeError for a module that was moved, cast or given other parameters, and after `stop`.
        """
        self._required_ready()
        if self.pulls % self.n_fetch == 0:
            self._fetch()
        self.pulls += 1

    def push(self, samples: int = 1):
        """Take the gradients of the module, which are gone afterwards; send what has gathered every
        `n_push`-th time.  `samples` is their weight where gradients are averaged.

        Cost: W values to the servers, all under way at once.
        Raises FloatingPointError for a gradient that is not finite, RuntimeError before the first
        pull; else as `pull` does.
        """
        required_count(samples, "the number of samples of a gradient", self.comm.rank, least=0)
        if not self.heads:
            raise RuntimeError(f"rank {self.comm.rank} pushes before it has pulled any weights")
        self._required_ready()
        self._gather(int(samples))
        self.pushes += 1
        if self.pushes % self.n_push == 0:
            self._send(self.n_push)

    def stop(self):
        """Send what has gathered, and take leave of the servers; once is enough."""
        if self.stopped:
            return
        self.stopped = True
        if gathered := self.pushes % self.n_push:
            self._send(gathered)
        self._finish(self._ask(Request.STOP))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.stop()
        elif issubclass(kind, Exception) and not self.stopped:
            with contextlib.suppress(PeerLost):
                self._finish(self._ask(Request.FAIL))

    def _required_ready(self):
        if self.stopped:
            raise RuntimeError(f"rank {self.comm.rank} has taken leave of its servers")
        self.weights.required_in_place(self.comm.rank)

    def _gather(self, samples):
        """Take this gradient into the mean over samples so far, or its step into their sum."""
        if samples:  # else it is the mean over nothing
            self.weights.required_finite(self.comm.rank)
            self.samples += samples
            if self.rate is None:
                share = samples / self.samples
                self.gradients.mul_(1 - share)
                self.weights.add_gradient(self.gradients, share)
            else:
                self.weights.add_gradient(self.gradients, self.rate)
                self.weights.add_gradient(self.weights.flat, -self.rate)
        self.weights.clear_gradients()

    def _send(self, gathered):
        """Push what was gathered in so many pushes."""
        if self.rate is None:
            self.gradients.mul_(gathered)
        under_way = self._ask(Request.PUSH)
        for number, server in enumerate(self.plan.servers):
            part = self.gradients[self.plan.shard(number)]
            under_way[number].append(self.comm.isend(part, server, Tag.DELTA))
        self._finish(under_way)
        for number, told in self.heads.items():
            self.heads[number] = told._replace(pushes=told.pushes + 1)
        self.gradients.zero_()
        self.samples = 0

    def _fetch(self):
        """Places for all answers first, so that no server has to wait for one."""
        words = [head(*ReplyHead()) for _ in self.plan.servers]
        places = {}
        for number, server in enumerate(self.plan.servers):
            part = self.weights.flat[self.plan.shard(number)]
            places[number] = [self.comm.irecv(words[number], server, Tag.HEAD),
                              self.comm.irecv(part, server, Tag.VALUES)]  # fmt: skip
        asked = self._ask(Request.PULL)
        self._finish({number: places[number] + asked[number] for number in places})
        self.heads = {number: ReplyHead(*told.tolist()) for number, told in enumerate(words)}

    def _ask(self, request) -> dict:
        """Begin to ask every server for something: {its number: [handle]}."""
        under_way = {}
        for number, server in enumerate(self.plan.servers):
            asked = RequestHead(request, self.versions.get(number, 0), self.samples)
            under_way[number] = [self.comm.isend(head(*asked), server, Tag.HEAD)]
        return under_way

    def _finish(self, under_way):
        """Wait for messages {number of a server: handles}, the last first."""
        lost = {}
        for number, handles in under_way.items():
            for handle in reversed(handles):
                try:
                    handle.wait()
                except PeerLost as error:
                    lost.setdefault(number, error)
        if lost:
            first = min(lost)
            server = self.comm.members[self.plan.servers[first]]
            raise PeerLost(self._loss_report(first), [server]) from lost[first]

    def _loss_report(self, number) -> str:
        """What the loss of a server means to this client."""
        told = self.heads.get(number, ReplyHead())
        end = f"{self.plan.describe(number)} was lost; client rank {self.comm.rank} last had"
        if told.saved == NEVER:
            what = f"knows of no snapshot: its {told.pushes} pushes are lost too"
            return f"{end} version {told.version} of it and {what}"
        found = f"snapshot of version {told.saved} has {told.saved_pushes} of its {told.pushes}"
        begins = "begins there, or with the newest that all servers have if they go in step"
        where = f"pushes, and serve() with the same snapshots {begins}"
        return f"{end} version {told.version} of it: its {found} {where}"
