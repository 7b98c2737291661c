"""The contract of a world: what the communicator asks of whatever carries its messages.

A world gives each of its ranks a `Transport`; the communicator adds groups, names and checks to it.
Whether bytes, shared memory or virtual time lie behind it, no algorithm can tell.
`tests/worlds/test_transport.py` holds every world in its table to this contract.
"""

import hashlib
from collections import Counter
from typing import NamedTuple, Protocol

import torch

from course.comm.task import Task
from course.comm.tensors import DTYPES, describe
from course.comm.trace import Meter

BACKGROUND = "background"  # a step of the path by which a group came to be
# That a rank can write for the others of its node: two halves of 4 MB, and a line for a header.
NODE_MEMORY_BYTES = (8 << 20) + 64


class Envelope(NamedTuple):
    """What a message says of itself.  The first three fields pick the receive that it is for."""

    group: int = 0
    call: int = 0
    tag: int = 0
    dtype: int = 0
    nbytes: int = 0

    def __str__(self):
        dtype = DTYPES[self.dtype]
        return f"{describe(dtype, [self.nbytes // dtype.itemsize])}, tag {self.tag}"


def group_id(path: tuple) -> int:
    """The number by which envelopes know the group that was split off by the steps of `path`: the
    same on all its ranks, another for every other group of theirs.  Odd: in the background."""
    digest = hashlib.blake2b(repr(path).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & ~1 | (BACKGROUND in path)


WORLD = group_id(())


def in_background(group: int) -> bool:
    """Whether messages of a group may still come while its rank waits for something else."""
    return bool(group & 1)


class Request(Protocol):
    """What can be waited for: a message on its way out, or a place for one."""

    done: bool
    source: int | None  # of a receive: the world's number of the rank that it came from
    unload: object  # of a receive: moves what has landed to where it was wanted, or None


class Window(Protocol):
    """Memory that the ranks of one node share."""

    buffers: dict[int, torch.Tensor]  # by the world's numbers: each rank writes its own

    def barrier(self, peers, operation: str): ...
    def poison(self): ...


class Transport(Protocol):
    """One rank's way to the others.  `operation` says in words, for errors, what is waited for.

    Errors have the sentences of `errors.py`, and after a CommMismatch all can go on:

    * A message that does not fit its place is refused, and a synchronous send hears of it.
    * A rank may wait, outside of a call, for peers that all wait in roll calls which it has not
      joined.  Then it answers these with its own operation, counts them in `last_call` as done,
      and raises CommMismatch, `differing`, that names both.
    * Messages of one source, group, call and tag arrive in the order in which they were sent.
    * `revoke`: whoever of `members` waits, now or later, within call `call` of the group raises
      CommMismatch(sentence), for one of them has left it so; other calls are not touched.
    * `cancel`: nobody wants what a request would have brought; what is under way is not stopped.
    * `background`: what runs a group's `submit`ted calls beside this rank's own, in their order.
    * `native`: the backend's own collectives on the ranks of `comm`; ValueError where there are
      none.  `node_memory`: what the ranks of this node share, or None.
    * `finish`: the rank's function has returned.  It comes back when all that was sent is accepted
      or on its way and nothing runs in the background, and peers that still wait for this rank
      hear that it has returned.  `abort`: it has failed; they hear that it was lost.

    The communicator counts the `meter` and writes the `trace`; `clock` is common to all ranks.
    """

    rank: int
    device: torch.device
    checked: bool
    meter: Meter
    trace: list | None  # None: nobody has asked for it

    @property
    def last_call(self) -> Counter: ...  # by group: the last call that this rank took part in

    def clock(self) -> float: ...
    def send_tensor(self, peer: int, envelope: Envelope, x, synchronous: bool) -> Request: ...
    def receive_tensor(self, peers, envelope: Envelope, out) -> Request: ...
    def wait(self, request: Request, operation): ...  # CommTimeout, PeerLost, CommMismatch
    def cancel(self, request: Request): ...
    def roll_call(self, group: int, call: int, members, text: str, operation) -> list[str]: ...
    def revoke(self, group: int, call: int, members, sentence: str): ...
    def background(self, group: int) -> "Background": ...
    def node_memory(self, group: int) -> Window | None: ...
    def native(self, comm): ...
    def finish(self): ...
    def abort(self): ...


class Background(Protocol):
    """What runs a group's calls in the background of a rank's own work, one after another."""

    transport: Transport  # the same rank's way to the others from within these calls

    def submit(self, call) -> Task: ...
    def join(self, task: Task): ...
