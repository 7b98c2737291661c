"""A port that opens only to those who know a secret.

Whoever connects shows a ticket and its seal (HMAC-SHA256 with the secret), 56 bytes in all; others
are turned away.  Tickets are for one connection, so to repeat what one has overheard opens nothing.
What goes over a connection afterwards is not encrypted, as with MPI, gloo and NCCL.
"""

import contextlib
import fcntl
import hashlib
import hmac
import selectors
import socket
import struct
import time
from typing import Any, NamedTuple

from course.comm.errors import CommError

TICKET = struct.Struct("<16sii")
SEAL_BYTES = 32
BACKLOG = 4096
CONNECT_S = 20.0  # to a port that is known to be open
ANY_PORT = 9  # need not be open: only the route to it is asked for
ADDRESS_OF = 0x8915  # SIOCGIFADDR of ioctl(2)


class Ticket(NamedTuple):
    """What a connection is for: ranks `rank` and `peer` of a run."""

    run: bytes  # 16 of them
    rank: int
    peer: int

    def sealed(self, secret: bytes) -> bytes:
        body = TICKET.pack(*self)
        return body + hmac.digest(secret, body, hashlib.sha256)


HEAD = Ticket(bytes(16), -1, -1)  # the launcher's


def read_ticket(data: bytes, secret: bytes):
    """The ticket that `data` holds; None if its seal is false."""
    body, seal = data[: TICKET.size], data[TICKET.size :]
    genuine = hmac.compare_digest(seal, hmac.digest(secret, body, hashlib.sha256))
    return Ticket(*TICKET.unpack(body)) if genuine else None


class Door:
    """A port of this process (default: any that is free) on one `address` of its own."""

    def __init__(self, address: str, secret: bytes, port: int = 0):
        self.secret, self.server = secret, socket.create_server((address, port), backlog=BACKLOG)
        self.server.setblocking(False)
        self.address = self.server.getsockname()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()

    def admit(self, expected: set, seconds: float) -> dict:
        """{ticket: its connection} for all tickets that are `expected`.  Raises CommError if they
        have not come in so many seconds."""
        admitted, end = {}, time.monotonic() + seconds
        with selectors.DefaultSelector() as arriving:
            arriving.register(self.server, selectors.EVENT_READ)
            while True:
                missing = expected - admitted.keys()
                left = max(0.0, end - time.monotonic()) if missing else 0.0
                ready = arriving.select(left)
                if not ready and (not missing or time.monotonic() >= end):
                    break  # whoever still knocks is turned away
                for key, _ in ready:
                    self._hear(key, arriving, missing, admitted)
            arriving.unregister(self.server)
            strangers: list[Any] = [key.fileobj for key in arriving.get_map().values()]
            for stranger in strangers:
                stranger.close()
        if missing:
            for guest in admitted.values():
                guest.close()
            raise CommError(f"{len(missing)} connections had not come in {seconds:g} s")
        return {ticket: ready_to_use(guest) for ticket, guest in admitted.items()}

    def _hear(self, key, arriving, missing, admitted):
        """Someone knocks, or says more of a ticket."""
        if key.fileobj is self.server:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                guest = self.server.accept()[0]
                guest.setblocking(False)
                arriving.register(guest, selectors.EVENT_READ, bytearray())
            return
        guest, said = key.fileobj, key.data
        with contextlib.suppress(OSError):
            said += (more := guest.recv(TICKET.size + SEAL_BYTES - len(said)))
            if more and len(said) < TICKET.size + SEAL_BYTES:
                return
        arriving.unregister(guest)
        complete = len(said) == TICKET.size + SEAL_BYTES
        ticket = read_ticket(bytes(said), self.secret) if complete else None
        if ticket in missing and ticket not in admitted:
            admitted[ticket] = guest
        else:
            guest.close()


def knock(address: tuple, ticket: Ticket, secret: bytes) -> socket.socket:
    """A connection to the door at `address` = (host, port), for what the ticket says.  Raises
    CommError if there is none."""
    try:
        end = socket.create_connection(address, CONNECT_S)
        end.sendall(ticket.sealed(secret))
        return ready_to_use(end)
    except OSError as error:
        host, port = address
        raise CommError(f"no connection to {host}:{port}: {error}") from None


def ready_to_use(end: socket.socket) -> socket.socket:
    """A connection that blocks, sends at once, and tells within a minute that the other machine is
    gone."""
    end.setblocking(True)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
        if hasattr(socket, name):  # seconds, seconds, times
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return end


def address_towards(host: str) -> str:
    """The address of this machine by which it reaches another one, and is reached from there."""
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route,
    ):
        route.connect((host, ANY_PORT))
        return route.getsockname()[0]
    return socket.gethostbyname(socket.gethostname())


def interface_of(address: str) -> str:
    """The network interface of this machine that has an address.  Raises OSError if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                answer = fcntl.ioctl(asked, ADDRESS_OF, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    raise OSError(f"no network interface here has the address {address}")
