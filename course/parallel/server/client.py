"""A client of a parameter server: pull weights, compute a gradient, push it."""

import contextlib
from numbers import Real

import torch

from course.comm import PeerLost
from course.parallel.flat_parameters import FlatParameters
from course.parallel.server.server import NEVER, Tag, Want
from course.parallel.server.shards import join


class Client:
    """This rank's side of the servers that keep the parameters of `module`; see `server.py`.

    Every `n_fetch`-th `pull` fetches, every `n_push`-th `push` sends the sum of the gradients so
    far.  With `rate` the client steps by itself meanwhile, w <- w - rate g, and what it sends is
    the sum of rate g: its own change of the weights, for servers that only add (SGD at rate 1).

    `versions` says for each shard which version it has, `clock` how many of this client's pushes
    the servers have got, earlier runs included.  At the end of its `with` block it sends what has
    gathered and takes its leave; the servers name it as lost if that ends with an error.
    Raises ValueError for what cannot be, CommMismatch where the ranks' plans or models differ.
    """

    def __init__(self, comm, plan, module, *, n_push=1, n_fetch=1, rate=None):
        if comm.rank not in plan.clients:
            raise ValueError(f"rank {comm.rank} is no client: those are {list(plan.clients)}")
        for name, count in (("n_push", n_push), ("n_fetch", n_fetch)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                rule = f"{name} is a whole number of steps, at least 1"
                raise ValueError(f"rank {comm.rank}: {rule}, not {count!r}")
        if rate is not None and not (isinstance(rate, Real) and rate > 0):
            raise ValueError(f"rank {comm.rank}: a client's own rate is above 0, not {rate!r}")
        self.comm, self.plan, self.n_push, self.n_fetch = comm, plan, n_push, n_fetch
        self.rate, self.names = rate, {p: name for name, p in module.named_parameters()}
        self.weights = FlatParameters(module)
        self.gradients = torch.zeros_like(self.weights.flat)
        self.pulls = self.pushes = self.samples = 0
        self.versions, self.counts, self.saved = {}, {}, {}
        join(comm, plan, self.weights.flat)

    @property
    def clock(self) -> int:
        return min(self.counts.values(), default=0)

    def pull(self):
        """Let the module have the servers' weights: every `n_fetch`-th time, the first included.

        Blocks until the servers' rule lets this client go on.
        Cost: W values from the servers, a shard from each, all under way at once.
        Raises PeerLost that names a lost server and what its last snapshot has; CommTimeout.
        """
        if self.pulls % self.n_fetch == 0:
            self._fetch()
        self.pulls += 1

    def push(self, samples: int = 1):
        """Take the gradients of the module, which are gone afterwards; send what has gathered every
        `n_push`-th time.  `samples` is their weight where servers take a mean.

        Cost: W values to the servers, all under way at once.
        Raises FloatingPointError for a gradient that is not finite, RuntimeError before the first
        pull; PeerLost as `pull` does.
        """
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
            rule = "a gradient is of a whole number of samples, 0 or more"
            raise ValueError(f"rank {self.comm.rank}: {rule}, not {samples!r}")
        if not self.versions:
            raise RuntimeError(f"rank {self.comm.rank} pushes before it has pulled any weights")
        self._gather(samples)
        self.pushes += 1
        if self.pushes % self.n_push == 0:
            self._send()

    def stop(self):
        """Send what has gathered, and take leave of the servers."""
        if self.pushes % self.n_push:
            self._send()
        self._tell(Want.STOP)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.stop()
        elif issubclass(kind, Exception):
            with contextlib.suppress(PeerLost):
                self._tell(Want.FAIL)

    def _gather(self, samples):
        self.samples += samples
        if samples:  # else it is the mean over nothing
            self._refuse_not_finite()
            self.weights.add_gradient(self.gradients, self.rate or 1)
            if self.rate is not None:
                self.weights.add_gradient(self.weights.flat, -self.rate)
        for parameter in self.weights.parameters:
            parameter.grad = None

    def _refuse_not_finite(self):
        for parameter in self.weights.parameters:
            gradient = parameter.grad
            if not (gradient is None or gradient.is_meta or gradient.sum().isfinite()):
                name = f"that of {self.names[parameter]} on rank {self.comm.rank}"
                raise FloatingPointError(f"gradients must be finite: not so {name}")

    def _send(self):
        def gradient(number, server):
            part = self.gradients[self.plan.shard(number)]
            return self.comm.isend(part, server, Tag.GRADIENT)

        self._tell(Want.PUSH, gradient)
        for number in self.counts:
            self.counts[number] += 1
        self.gradients.zero_()
        self.samples = 0

    def _fetch(self):
        """Places for all answers first, so that no server has to wait for one."""
        heads = [torch.empty(4, dtype=torch.long, device="cpu") for _ in self.plan.servers]
        handles = {}
        for number, server in enumerate(self.plan.servers):
            place = self.weights.flat[self.plan.shard(number)]
            handles[number] = [self.comm.irecv(heads[number], server, Tag.ANSWER),
                               self.comm.irecv(place, server, Tag.WEIGHTS)]  # fmt: skip
        self._tell(Want.PULL, lambda number, server: None, handles)
        for number, head in enumerate(heads):
            version, count, saved, saved_count = head.tolist()
            self.versions[number], self.counts[number] = version, count
            self.saved[number] = saved, saved_count

    def _tell(self, kind, also=None, handles=None):
        """Ask every server for something, and wait until all that belongs to it is through."""
        handles = handles or {number: [] for number in range(len(self.plan.servers))}
        for number, server in enumerate(self.plan.servers):
            head = torch.tensor([kind, self.versions.get(number, 0), self.samples], device="cpu")
            handles[number].append(self.comm.isend(head, server, Tag.ASK))
            handles[number] += filter(None, [also and also(number, server)])
        lost = {}
        for number, under_way in handles.items():
            for handle in reversed(under_way):
                try:
                    handle.wait()
                except PeerLost as error:
                    lost.setdefault(number, error)
        if lost:
            first = min(lost)
            server = self.comm.members[self.plan.servers[first]]
            raise PeerLost(self._account(first), [server]) from lost[first]

    def _account(self, number) -> str:
        """What the loss of a server means to this client."""
        saved, kept = self.saved.get(number, (NEVER, 0))
        known, pushed = self.versions.get(number, 0), self.counts.get(number, 0)
        end = f"{self.plan.named(number)} was lost; client rank {self.comm.rank} last had version"
        if saved == NEVER:
            return f"{end} {known} of it and knows of no snapshot: its {pushed} pushes are lost too"
        found = f"its snapshot of version {saved} has {kept} of its {pushed} pushes"
        return f"{end} {known} of it: {found}, and serve() with the same snapshots begins there"
