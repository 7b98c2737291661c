"""Messages between ranks that keep weights, the servers, and ranks that train, their clients: of a
parameter server and of elastic averaging's served centre.

A client's request is a short head; with a PUSH goes what is to be added.  The answer to a PULL is
the server's weights, and a parameter server's head before them.
"""

import contextlib
from enum import IntEnum
from typing import NamedTuple

import torch

from course.comm import ANY, LAST_TAG, PeerLost

NEVER = -1  # there is no snapshot yet
WORD_BYTES = 8  # a head is of int64


class Tag(IntEnum):
    """Of heads, of weights, of changes to them; out of the way of a program's own tags."""

    HEAD, VALUES, DELTA = range(LAST_TAG - 2, LAST_TAG + 1)


class Request(IntEnum):
    """What a client asks a server for; FAIL: it ends with an error, or was lost."""

    PULL, PUSH, STOP, FAIL = range(4)


class RequestHead(NamedTuple):
    """What a client of a parameter server says: a request, the version that it has of this server's
    weights, and the number of samples that its gradient is of."""

    request: int
    version: int = 0
    samples: int = 0


class ReplyHead(NamedTuple):
    """What a parameter server says of the weights that follow: their version, how many pushes of
    this client they have, the version of its last snapshot and how many pushes that has."""

    version: int = 0
    pushes: int = 0
    saved: int = NEVER
    saved_pushes: int = 0


class Push(NamedTuple):
    """A gradient [elements of the shard] of so many samples, of weights of version `based`."""

    client: int
    based: int
    samples: int
    gradient: torch.Tensor


REQUEST_BYTES = WORD_BYTES * len(RequestHead._fields)
REPLY_BYTES = WORD_BYTES * len(ReplyHead._fields)


def head(*words) -> torch.Tensor:
    """The words of a head as a message [words], with values also where tensors have only shapes."""
    return torch.tensor(words, device="cpu")


def handle_requests(comm, clients: set, words: int, dispatch):
    """Call `dispatch(client, *words of its head)` for one request after another until `clients` is
    empty: it takes those out that have ended.  A client that was lost asks to FAIL.

    Raises CommTimeout when no client asks for anything.
    """
    said = torch.empty(words, dtype=torch.long, device="cpu")
    while clients:
        try:
            dispatch(comm.recv(said, ANY, Tag.HEAD), *said.tolist())
        except PeerLost as error:  # said once; of a server, too, but then the clients end
            for client in sorted(clients):
                if comm.members[client] in error.ranks:
                    dispatch(client, Request.FAIL, *[0] * (words - 1))


class Replies:
    """What a server sends to its clients while it listens to others."""

    def __init__(self, comm):
        self.comm, self.handles = comm, {}

    def send(self, client, messages):
        """Begin to send the tensors `messages` {tag: tensor}, which nobody else may change."""
        self.wait(client)
        self.handles[client] = [self.comm.isend(x, client, tag) for tag, x in messages.items()]

    def wait(self, client):
        """Until what was sent to a client is through, as it is once the client asks again.

        Raises PeerLost.
        """
        handles = self.handles.setdefault(client, [])
        while handles:
            handles.pop().wait()

    def settle(self, clients):
        """Wait for what was sent to these clients; who was lost needs nothing."""
        for client in clients:
            while self.handles.get(client):
                with contextlib.suppress(PeerLost):
                    self.wait(client)
