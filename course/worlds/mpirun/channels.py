"""Messages over MPI, for ranks that an MPI has started.

The transport is that of sockets; it is composed of other parts.  A channel to a peer offers the few
calls of a socket that a stream makes; a poller asks the channels for news; MPI has collectives of
its own.
"""

import atexit
import contextlib
import functools
import os
import time
from selectors import EVENT_READ, EVENT_WRITE

from mpi4py import MPI

from course.comm.communicator import Communicator
from course.worlds.mpirun.mpi_backend import backoff, native
from course.worlds.sockets.connect import own_device
from course.worlds.sockets.polling import interest
from course.worlds.sockets.stream import INBOX_BYTES, Stream
from course.worlds.sockets.transport import SocketTransport

FLUSH_S = 0.5  # so long a rank that has failed sees what it has sent off


class MpiChannel:
    """The messages to and from one peer, in the manner of a socket that does not block.  A message
    of no bytes is its end."""

    def __init__(self, world, peer):
        self.world, self.peer, self.status = world, peer, MPI.Status()
        self.sends, self.receive, self.count = [], None, None  # requests; bytes once here

    ended = False  # whether the peer has said that nothing more comes

    def setblocking(self, _):
        """It never blocks."""

    def sendmsg(self, parts) -> int:
        """Send a frame; the number of its bytes once the program may have them back."""
        total = sum(map(len, parts))
        if not self.sends:
            whole = [b"".join(parts)] if total <= INBOX_BYTES else parts
            self.sends = [self._post(self.world.Isend, part) for part in whole]
        if not MPI.Request.Testall(self.sends):
            raise BlockingIOError
        self.sends = []
        return total

    def recv_into(self, view) -> int:
        """Receive the next message into `view`; its bytes once it is here."""
        if self.receive is None:
            self.receive = self._post(self.world.Irecv, view)
        if not self._arrived():
            raise BlockingIOError
        count, self.receive, self.count = self.count, None, None
        self.ended = count == 0
        return count

    def ready(self) -> int:
        """What would not block, as a selector says it."""
        reading = EVENT_READ if self.receive is None or self._arrived() else 0
        return reading | (EVENT_WRITE if MPI.Request.Testall(self.sends) else 0)

    def send_eof(self):
        """Tell the peer that nothing more comes."""
        self.sends.append(self._post(self.world.Isend, b""))

    def drain(self):
        """Receive for nobody what the peer still sends, until its end."""
        while not self.ended:
            if self.receive is None:
                self.world.Probe(self.peer, status=self.status)
                place = bytearray(self.status.Get_count(MPI.BYTE))
                self.receive = self._post(self.world.Irecv, place)
            with contextlib.suppress(BlockingIOError):
                self.recv_into(None)

    def _arrived(self) -> bool:
        if self.count is None and self.receive.Test(self.status):
            self.count = self.status.Get_count(MPI.BYTE)
        return self.count is not None

    def _post(self, post, view):
        try:
            return post([view, MPI.BYTE], self.peer)
        except MPI.Exception as error:
            raise OSError(f"MPI says: {error}") from error


class MpiPoller:
    """Streams over `channels` of MPI, asked again and again: nobody wakes a rank that sleeps."""

    def __init__(self, channels):
        self.channels, self.watched = channels, {}
        atexit.register(self.close)

    def update(self, stream):
        """Ask for exactly the news of this stream that can be acted upon."""
        self.watched[stream] = interest(stream)

    def poll(self, timeout_s, lock) -> list:
        """[(stream, what it is ready for)]; in the pauses others may have the lock."""
        start = time.monotonic()
        while not (ready := self._ready()):
            waited = time.monotonic() - start
            if waited > timeout_s:
                break
            lock.release()
            backoff(waited)
            lock.acquire()
        return ready

    def abort(self):
        """Tell all peers that this rank is lost to them, and see what was sent off if it goes."""
        for channel in self.channels:
            channel.send_eof()
        until = time.monotonic() + FLUSH_S
        requests = [request for channel in self.channels for request in channel.sends]
        while not MPI.Request.Testall(requests) and time.monotonic() < until:
            os.sched_yield()

    def close(self):
        """Return once every rank has called it: MPI ends in order only when no receive is open,
        nothing came for nobody, and who sent it is still there."""
        for channel in self.channels:
            channel.send_eof()
        for channel in self.channels:
            channel.drain()
        MPI.COMM_WORLD.Barrier()

    def _ready(self) -> list:
        seen = [(stream, mask & stream.socket.ready()) for stream, mask in self.watched.items()]
        return [(stream, mask) for stream, mask in seen if mask]


def connect(rank, *, device, timeout, **settings) -> Communicator:
    """The world's communicator, in which this process of MPI's world is number `rank`."""
    world = MPI.COMM_WORLD.Split(0, rank)
    machines = world.allgather(MPI.Get_processor_name())
    nodes = [list(dict.fromkeys(machines)).index(machine) for machine in machines]
    channels = {peer: MpiChannel(world, peer) for peer in range(world.size) if peer != rank}
    streams = {peer: Stream(peer, channel) for peer, channel in channels.items()}
    poller, device = MpiPoller(channels.values()), own_device(rank, nodes, device)
    transport = SocketTransport(rank, streams, poller, device=device, timeout=timeout, **settings)
    transport.native = functools.partial(native, world=world, timeout_s=timeout)
    return Communicator(transport, range(world.size), nodes)
