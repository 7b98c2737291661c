"""The communicator: a group of ranks that send tensors to one another.

Every distributed algorithm of this package is a function whose first argument is a communicator.
With it a rank asks who it is (`rank`, `size`, `node`), moves tensors (`send`, `recv`, `exchange`,
`isend`, `irecv`), forms smaller groups (`split`), and lets whole calls run in the background of
its own work (`submit`).  What carries the tensors is the *transport* underneath (`transport.py`).
"""

import contextlib
import json
import operator
from typing import Any, NamedTuple

import torch

from course.comm.buffers import BuffersInFlight
from course.comm.errors import CommError, CommMismatch, differing
from course.comm.node_memory import NodeMemory
from course.comm.tensors import CODES, describe, required, writable
from course.comm.trace import Event
from course.comm.transport import BACKGROUND, Envelope, group_id, in_background

ANY = "any rank"
LAST_TAG = 2**31 - 1


class Handle:
    """A message under way; its tensor belongs to the message until `wait()` has returned."""

    __slots__ = (
        "_comm", "_request", "_done", "operation", "peer", "tensor", "envelope", "call", "start"
    )  # fmt: skip

    _request: Any

    def __init__(self, comm, operation, peer, tensor, envelope):
        self._comm, self._request, self._done = comm, None, False
        self.operation, self.peer, self.tensor, self.envelope = operation, peer, tensor, envelope
        self.call, transport = comm._call.label, comm._transport
        self.start = 0.0 if transport.trace is None else transport.clock()

    def wait(self):
        """Block until the message is through; for a receive, returns the rank it came from.

        Raises CommMismatch, CommTimeout, PeerLost.
        """
        if not self._done:
            comm, request, transport = self._comm, self._request, self._comm._transport
            if comm._buffers.versions:
                comm._buffers.release(self)
            transport.wait(request, self)
            self._done = True
            if self.operation == "recv" and request.unload:
                request.unload()
            transport.meter.count(self.operation, self.envelope.nbytes)
            if transport.trace is not None:
                comm._trace_message(self)
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
        what = f"{describe(self.tensor.dtype, self.tensor.shape)}, tag {self.envelope.tag}"
        within = f" within {self.call}" if self.call else ""
        return f"{self.operation} {way} {peer} ({what}){within}"


class Future:
    """A call that runs beside its rank's own work; what it works on is its own until `wait()`."""

    def __init__(self, background, task, buffers, aliases):
        self._background, self._task, self._buffers = background, task, buffers
        self._aliases = aliases  # of the tensors that it works on

    def wait(self):
        """Block until the call has returned: its value.  Raises what it has raised, and ValueError
        if the program has changed meanwhile what the call works on."""
        self._background.join(self._task)
        aliases, self._aliases = self._aliases, []
        self._buffers.take_back(aliases)
        if self._task.error:
            raise self._task.error
        value = self._task.value
        self._task.value = next((x for x, alias in aliases if alias is value), value)
        return self._task.value


class Call(NamedTuple):
    """A collective call that a rank is in: which one of its group (0: none), and in words."""

    number: int = 0
    label: str = ""


class Communicator:
    """`size` ranks, of which this process is number `rank`; `nodes` are the machines they are on.

    `members` are their numbers in the world.  In checked mode a send outside of
    collectives returns when its receiver has accepted it, and every collective begins with all
    ranks saying which call they are in.  A rank that has caught an error and left a call out says
    so with its next one: all raise CommMismatch there, and can go on.
    """

    def __init__(self, transport, members, nodes, name="world", *, path=(), buffers=None):
        self._transport, self.members, self.nodes = transport, tuple(members), tuple(nodes)
        self.rank, self.size, self.name = self.members.index(transport.rank), len(members), name
        self._path, self._group, self._call = path, group_id(path), Call()
        self._buffers = buffers or BuffersInFlight(transport.rank)
        self._background = self._native = None

    @property
    def node(self) -> int:
        """The machine that this rank is on."""
        return self.nodes[self.rank]

    @property
    def device(self) -> torch.device:
        """Where this rank's tensors are best put."""
        return self._transport.device

    @property
    def checked(self) -> bool:
        """Whether every message and every call is compared between ranks."""
        return self._transport.checked

    @property
    def call(self) -> str:
        """The collective call that this rank is in, in words; nothing outside of one."""
        return self._call.label

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
        except CommMismatch:  # what `src` has sent is to find its place all the same
            with contextlib.suppress(CommError):
                incoming.wait()
            raise
        except Exception:
            self._transport.cancel(incoming._request)
            self._buffers.release(incoming)
            raise
        return incoming.wait()

    def isend(self, x, dst: int, tag: int = 0) -> Handle:
        """Begin to send `x` to `dst`; leave `x` as it is until the handle's `wait()`."""
        required(x, "what is sent", self.rank)
        peer, envelope = self._member(dst, "send to"), self._envelope(x, tag)
        handle = Handle(self, "send", dst, x, envelope)
        synchronous = not self._call.number and self._transport.checked
        if synchronous:
            self._buffers.claim(handle)
        handle._request = self._transport.send_tensor(peer, envelope, x, synchronous)
        return handle

    def irecv(self, out, src, tag: int = 0) -> Handle:
        """Begin to receive into `out` from `src` (or ANY); read it after the handle's `wait()`."""
        writable(out, self.rank)
        peers = self.members if src == ANY else (self._member(src, "receive from"),)
        envelope = self._envelope(out, tag)
        handle = Handle(self, "recv", src, out, envelope)
        if not self._call.number and self._transport.checked:
            self._buffers.claim(handle)
        handle._request = self._transport.receive_tensor(peers, envelope, out)
        return handle

    # All ranks together

    def clock(self) -> float:
        """Seconds by this world's clock: the machine's, or the imagined cluster's."""
        return self._transport.clock()

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
        are in.  Raises CommMismatch on every rank if they differ, and on those that wait in it for
        a rank that has left it by an error of its own.  All can go on after both.
        """
        if self._call.number:  # a part of the collective that this rank is in already
            yield
            return
        number = self._next_call()
        label, start = self._name_call(name, number, tensors, details), self._transport.clock()
        if self.checked:
            self._roll_call(number, label)
        self._call = Call(number, label)
        try:
            yield
        except CommMismatch as error:
            self._revoke(number, str(error))
            raise
        except CommError:  # of which the others hear by themselves
            raise
        except Exception as error:
            rank = self._transport.rank
            self._revoke(number, f"rank {rank} has left {label} before its end: {error!r:.200}")
            raise
        finally:
            self._call = Call()
        self._traced(name, -1, 0, 0, start, label)

    def split(self, color, key=None):
        """The communicator of all ranks that gave the same `color`, in the order of `key` (else
        of rank); None for a rank whose color is None.  Collective over this communicator."""
        mine = self._split_key(color, self.rank if key is None else key)
        number = self._next_call()
        everyone = [json.loads(said) for said in self._roll_call(number, f"split #{number}", mine)]
        color = everyone[self.rank][0]
        chosen = sorted(entry[1:] for entry in everyone if entry[0] == color)
        if color is None:
            return None
        members, nodes = zip(*[(self.members[r], self.nodes[r]) for _, r in chosen])
        color, _, _ = everyone[chosen[0][1]]  # as one of them spells it: 1 is 1.0, and True
        name, path = f"{self.name}/{number}:{color}", (*self._path, number, json.dumps(color))
        again = {"path": path, "buffers": self._buffers}
        return Communicator(self._transport, members, nodes, name, **again)

    def _split_key(self, color, key) -> str:
        try:
            return json.dumps([color, operator.index(key), self.rank], default=operator.index)
        except TypeError:
            raise ValueError(
                f"rank {self.rank}: a color is a number, a text or a tuple of such, and a key is a "
                f"whole number, not {color!r} and {key!r}"
            ) from None

    def submit(self, fn, *args, **kwargs) -> Future:
        """Run `fn(comm, *args)` beside this rank's own work, after all that was submitted before.

        That `comm` has the same ranks and messages of its own.  All ranks submit the same calls in
        the same order.  Leave the arguments alone until the `wait()` of what this returns.
        """
        if self._background is None:
            name, path = f"{self.name}, in the background", (*self._path, BACKGROUND)
            thread = self._transport.background(self._group)
            comm = Communicator(thread.transport, self.members, self.nodes, name, path=path)
            self._background = thread, comm
        (thread, comm), aliases = self._background, []
        if self.checked:
            args = self._buffers.lend(args, aliases)
            kwargs = {key: self._buffers.lend(value, aliases) for key, value in kwargs.items()}

        def call():
            value = fn(comm, *args, **kwargs)
            comm._buffers.check_none_left()
            return value

        return Future(thread, thread.submit(call), self._buffers, aliases)

    def node_memory(self) -> NodeMemory | None:
        """The memory that the ranks of each node share; None where they share none."""
        window = self._transport.node_memory(self._group)
        return window and NodeMemory(self, window)

    @property
    def native(self):
        """The backend's own collectives on this group, for comparison and for production.

        Collective the first time it is asked for.
        """
        self._native = self._native or self._transport.native(self)
        return self._native

    @property
    def meter(self):
        """What this rank has sent and received so far: exact bytes and messages, payload only."""
        return self._transport.meter

    def finish(self):
        """Wait for all that this rank has begun to send; it takes part in nothing after that."""
        self._buffers.check_none_left()
        self._transport.finish()

    def abort(self):
        """Let the others know that this rank has failed."""
        self._transport.abort()

    @property
    def events(self) -> list:
        """What this rank has done so far, as trace events."""
        return self._transport.trace or []

    # Behind the calls

    def gather_texts(self, text: str) -> list[str]:
        """What every rank has to say, in the order of ranks.  Collective."""
        number = self._next_call()
        return self._roll_call(number, f"agreement #{number}", text)

    def _next_call(self) -> int:
        """The number of the collective call of this group that begins now."""
        self._transport.last_call[self._group] += 1
        return self._transport.last_call[self._group]

    def _roll_call(self, number, label, text="") -> list[str]:
        """What every rank says of call `number`; all must be in the same one."""
        said = self._transport.roll_call(
            self._group, number, self.members, f"{label}\n{text}", label
        )
        labels, texts = zip(*[entry.split("\n", 1) for entry in said])
        if len(set(labels)) > 1:
            raise CommMismatch(differing(dict(zip(self.members, labels))))
        return list(texts)

    def _revoke(self, number, sentence):
        """Tell whoever waits within call `number` that this rank has left it."""
        self._transport.revoke(self._group, number, self.members, sentence)

    def _name_call(self, name, number, tensors, details) -> str:
        words = [describe(x.dtype, x.shape) for x in tensors]
        words += [f"{key} {value}" for key, value in details.items()]
        where = "" if self.name == "world" else f" in {self.name}"
        return f"{name} #{number}{where}" + (f" ({', '.join(words)})" if words else "")

    def _envelope(self, x, tag) -> Envelope:
        if not (isinstance(tag, int) and 0 <= tag <= LAST_TAG):
            rule = f"a tag is a whole number from 0 to {LAST_TAG}"
            raise ValueError(f"rank {self.rank}: {rule}, not {tag!r}")
        fields = self._group, self._call[0], tag, CODES[x.dtype], x.nbytes
        return tuple.__new__(Envelope, fields)  # twice as fast as by its own name

    def _member(self, rank, verb) -> int:
        """The world's number of one of this group's ranks."""
        try:
            if 0 <= operator.index(rank) < self.size:
                return self.members[rank]
        except TypeError:
            pass
        ranks = "the only rank is 0" if self.size == 1 else f"the ranks are 0 to {self.size - 1}"
        raise ValueError(f"rank {self.rank} cannot {verb} rank {rank!r}: {ranks}")

    def _trace_message(self, handle):
        """Trace a message that is through."""
        source, (_, _, tag, _, nbytes) = handle._request.source, handle.envelope
        peer = self.members[handle.peer] if source is None else source
        self._traced(handle.operation, peer, tag, nbytes, handle.start, handle.call)

    def _traced(self, operation, peer, tag, nbytes, start, call):
        """Trace what has just ended, unless this world's trace was not asked for."""
        if self._transport.trace is not None:
            event = operation, peer, tag, nbytes, start, self._transport.clock(), call
            background = in_background(self._group)
            self._transport.trace.append(Event(self._transport.rank, *event, background))
