"""The communicator: a group of ranks that send tensors to one another.

Every distributed algorithm of this package is a function whose first argument is a communicator.
With it a rank asks who it is (`rank`, `size`, `node`), moves tensors (`send`, `recv`, `exchange`,
`isend`, `irecv`), forms smaller groups (`split`), and lets whole calls run beside its own work
(`begin`).  What carries the tensors is the *wire*
underneath: sockets between processes, or whatever else offers the same few calls.
"""

import contextlib
import itertools
import json
import operator
import zlib

import torch

from course.comm.buffers import Loans
from course.comm.errors import CommMismatch, differing
from course.comm.tensors import CODES, describe, required, writable
from course.comm.trace import Event
from course.comm.transport import Envelope

ANY = "any rank"
LAST_TAG = 2**31 - 1
BESIDE = ", beside"


class Handle:
    """A message under way; its tensor belongs to the message until `wait()` has returned."""

    def __init__(self, comm, operation, peer, tensor, tag):
        self._comm, self._request, self._done = comm, None, False
        self.operation, self.peer, self.tensor, self.tag = operation, peer, tensor, tag
        self.call, self.start = comm._label, comm._wire.clock()

    def wait(self):
        """Block until the message is through; for a receive, returns the rank it came from.

        Raises CommMismatch, CommTimeout, PeerLost.
        """
        if not self._done:
            self._comm._loans.give_back(self)
            self._comm._wire.wait(self._request, self)
            self._done = True
            if self.operation == "recv" and self._request.unload:
                self._request.unload()
            self._comm._record(self)
        if self.operation == "send":
            return None
        if self.peer != ANY:  # to find it among many members takes long
            return operator.index(self.peer)
        return self._comm.members.index(self._request.source)

    @property
    def posted(self) -> bool:
        return self._request is not None

    def __str__(self):
        way = "to" if self.operation == "send" else "from"
        peer = self.peer if self.peer == ANY else f"rank {self._comm.members[self.peer]}"
        what = f"{describe(self.tensor.dtype, self.tensor.shape)}, tag {self.tag}"
        within = f" within {self.call}" if self.call else ""
        return f"{self.operation} {way} {peer} ({what}){within}"


class Begun:
    """A call that runs beside its rank's own work; what it works on is its own until `wait()`."""

    def __init__(self, companion, call):
        self._companion, self._work = companion, companion.begin(call)

    def wait(self):
        """Block until the call has returned: its value.  Raises what it has raised."""
        self._companion.join(self._work)
        if self._work.error:
            raise self._work.error
        return self._work.value


class Common:
    """`places` [bytes] by rank: each rank of this node writes its own and reads all."""

    def __init__(self, comm, ground):
        self._comm, self._ground = comm, ground
        ranks = enumerate(comm.members)
        self.places = {r: ground.places[m] for r, m in ranks if m in ground.places}

    def meet(self):
        """Return once all ranks of this node are here: what they wrote before can be read after
        it.  Cost: no message.  Raises CommTimeout, PeerLost, CommError."""
        comm = self._comm
        peers = [comm.members[rank] for rank in self.places if rank != comm.rank]
        self._ground.meet(peers, f"a meeting of node {comm.node} within {comm._label}")


class Communicator:
    """`size` ranks, of which this process is number `rank`; `nodes` are the machines they are on.

    `members` are their numbers in the world.  In checked mode a send returns when its receiver
    has accepted it, and every collective begins with all ranks saying which call they are in.
    """

    def __init__(self, wire, members, nodes, name="world", loans=None):
        self._wire, self.members, self.nodes, self.name = wire, tuple(members), tuple(nodes), name
        self.rank, self.size = self.members.index(wire.rank), len(self.members)
        self.node, self.device, self.checked = self.nodes[self.rank], wire.device, wire.checked
        self._group = zlib.crc32(name.encode()) & ~1 | (BESIDE in name)  # odd: beside
        self._numbers, self._number, self._label = itertools.count(1), 0, ""
        self._companion, self._loans = None, loans or Loans(wire.rank)

    def __repr__(self):
        return f"<rank {self.rank} of {self.size} in {self.name}, node {self.node}>"

    # One message

    def send(self, x, dst: int, tag: int = 0):
        """Send `x` [any shape] to rank `dst`.  Cost: one message of x's bytes.

        A message to oneself is set aside: its `recv` may come later.
        Raises ValueError for a rank, tag or tensor that cannot be; CommMismatch, CommTimeout,
        PeerLost.
        """
        self.isend(x, dst, tag).wait()

    def recv(self, out, src, tag: int = 0) -> int:
        """Receive into `out` [as many elements as were sent] from rank `src`, or from ANY.

        Returns the rank it came from.  Raises as `send` does.
        """
        return self.irecv(out, src, tag).wait()

    def exchange(self, x, dst: int, out, src, tag: int = 0) -> int:
        """Send `x` to `dst` while receiving into `out` from `src`: no deadlock, whatever the size.

        Returns the rank that `out` came from.  Raises as `send` does.
        """
        incoming = self.irecv(out, src, tag)
        try:
            self.isend(x, dst, tag).wait()
        except Exception:
            self._wire.give_up(incoming._request)
            self._loans.give_back(incoming)
            raise
        return incoming.wait()

    def isend(self, x, dst: int, tag: int = 0) -> Handle:
        """Begin to send `x` to `dst`; leave `x` as it is until the handle's `wait()`."""
        required(x, "what is sent", self.rank)
        peer, envelope = self._member(dst, "send to"), self._envelope(x, tag)
        handle, confirm = Handle(self, "send", dst, x, tag), self.checked and not self._number
        if confirm:
            self._loans.lend(handle)
        handle._request = self._wire.send_tensor(peer, envelope, x, confirm)
        return handle

    def irecv(self, out, src, tag: int = 0) -> Handle:
        """Begin to receive into `out` from `src` (or ANY); read it after the handle's `wait()`."""
        writable(out, self.rank)
        peers = self.members if src == ANY else (self._member(src, "receive from"),)
        handle = Handle(self, "recv", src, out, tag)
        if self.checked and not self._number:
            self._loans.lend(handle)
        handle._request = self._wire.receive_tensor(peers, self._envelope(out, tag), out)
        return handle

    # All ranks together

    def clock(self) -> float:
        """Seconds by this world's clock: the machine's, or the imagined cluster's."""
        return self._wire.clock()

    def barrier(self):
        """Return once every rank has called it.  Cost: ceil(lg p) steps of empty messages."""
        nothing, step = torch.empty(0, dtype=torch.uint8, device="cpu"), 1
        with self.collective("barrier"):
            while step < self.size:
                ahead, behind = (self.rank + step) % self.size, (self.rank - step) % self.size
                self.exchange(nothing, ahead, nothing, behind)
                step *= 2

    @contextlib.contextmanager
    def collective(self, name: str, *tensors, **details):
        """The messages of one collective call, kept apart from all others.

        In checked mode all ranks first say which call, tensors and details (root, op, ...) they
        are in.  Raises CommMismatch on every rank if they differ.
        """
        if self._number:  # a part of the collective that this rank is in already
            yield
            return
        number = next(self._numbers)
        label, start = self._name_call(name, number, tensors, details), self._wire.clock()
        if self.checked:
            self._share(number, label)
        self._number, self._label = number, label
        try:
            yield
        finally:
            self._number, self._label = 0, ""
        self._note(name, -1, 0, 0, start, label)

    def split(self, color, key=None):
        """The communicator of all ranks that gave the same `color`, in the order of `key` (else
        of rank); None for a rank whose color is None.  Collective over this communicator."""
        mine = self._ticket(color, self.rank if key is None else key)
        number = next(self._numbers)
        everyone = [json.loads(said) for said in self._share(number, f"split #{number}", mine)]
        color = everyone[self.rank][0]
        chosen = sorted(entry[1:] for entry in everyone if entry[0] == color)
        if color is None:
            return None
        members, nodes = zip(*[(self.members[r], self.nodes[r]) for _, r in chosen])
        name = f"{self.name}/{number}:{color}"
        return Communicator(self._wire, members, nodes, name, self._loans)

    def _ticket(self, color, key) -> str:
        try:
            return json.dumps([color, operator.index(key), self.rank], default=operator.index)
        except TypeError:
            raise ValueError(
                f"rank {self.rank}: a color is a number, a text or a tuple of such, and a key is a "
                f"whole number, not {color!r} and {key!r}"
            ) from None

    def begin(self, fn, *args, **kwargs) -> Begun:
        """Run `fn(comm, *args)` beside this rank's own work, after all that was begun before.

        That `comm` has the same ranks and messages of its own.  All ranks begin the same calls in
        the same order.  Leave the arguments alone until the `wait()` of what this returns.
        """
        if self._companion is None:
            wire, name = self._wire.companion(), self.name + BESIDE
            self._companion = Communicator(wire, self.members, self.nodes, name)
        comm = self._companion

        def call():
            value = fn(comm, *args, **kwargs)
            comm._loans.settle()
            return value

        return Begun(comm._wire, call)

    @contextlib.contextmanager
    def common(self):
        """The memory that the ranks of each node share, as a `Common` (None where they share none,
        and beside a smaller group).  An error within it makes it useless from then on."""
        own, beside = getattr(self._wire, "grounds", (None, None))
        world = self.name == "world" + BESIDE  # the groups' calls beside run at the same time
        ground = own if BESIDE not in self.name else beside if world else None
        try:
            yield ground and Common(self, ground)
        except BaseException:
            if ground:
                ground.leave()
            raise

    @property
    def native(self):
        """The backend's own collectives on this group, for comparison and for production.

        Collective over the world the first time it is asked for.
        """
        return self._wire.native(self)

    @property
    def meter(self):
        """What this rank has sent and received so far: exact bytes and messages, payload only."""
        return self._wire.meter

    def finish(self):
        """Wait for all that this rank has begun to send; it takes part in nothing after that."""
        self._loans.settle()
        self._wire.finish()

    def abandon(self):
        """Let the others know that this rank has failed."""
        self._wire.abandon()

    @property
    def events(self) -> list:
        """What this rank has done so far, as trace events."""
        return [] if self._wire.trace is None else self._wire.trace

    # Behind the calls

    def _tell(self, text: str) -> list[str]:
        """What every rank has to say, in the order of ranks."""
        number = next(self._numbers)
        return self._share(number, f"agreement #{number}", text)

    def _share(self, number, label, text="") -> list[str]:
        """What every rank says of call `number`; all must be in the same one."""
        said = self._wire.share(self._group, number, self.members, f"{label}\n{text}", label)
        labels, texts = zip(*[entry.split("\n", 1) for entry in said])
        if len(set(labels)) > 1:
            raise CommMismatch(differing(dict(zip(self.members, labels))))
        return texts

    def _name_call(self, name, number, tensors, details) -> str:
        words = [describe(x.dtype, x.shape) for x in tensors]
        words += [f"{key} {value}" for key, value in details.items()]
        where = "" if self.name == "world" else f" in {self.name}"
        return f"{name} #{number}{where}" + (f" ({', '.join(words)})" if words else "")

    def _envelope(self, x, tag) -> Envelope:
        if not (isinstance(tag, int) and 0 <= tag <= LAST_TAG):
            rule = f"a tag is a whole number from 0 to {LAST_TAG}"
            raise ValueError(f"rank {self.rank}: {rule}, not {tag!r}")
        return Envelope(self._group, self._number, tag, CODES[x.dtype], x.nbytes)

    def _member(self, rank, verb) -> int:
        """The world's number of one of this group's ranks."""
        try:
            if 0 <= operator.index(rank) < self.size:
                return self.members[rank]
        except TypeError:
            pass
        ranks = "the only rank is 0" if self.size == 1 else f"the ranks are 0 to {self.size - 1}"
        raise ValueError(f"rank {self.rank} cannot {verb} rank {rank!r}: {ranks}")

    def _record(self, handle):
        """Meter and trace a message that is through."""
        nbytes = handle.tensor.nbytes
        self._wire.meter.count(handle.operation, nbytes)
        if self._wire.trace is not None:
            source = getattr(handle._request, "source", None)
            peer = self.members[handle.peer] if source is None else source
            self._note(handle.operation, peer, handle.tag, nbytes, handle.start, handle.call)

    def _note(self, operation, peer, tag, nbytes, start, call):
        """Trace what has just ended, unless this world's trace was not asked for."""
        if self._wire.trace is not None:
            event = operation, peer, tag, nbytes, start, self._wire.clock(), call
            self._wire.trace.append(Event(self.members[self.rank], *event))
