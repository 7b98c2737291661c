"""Messages over MPI, for ranks that an MPI has started.

All that a wire knows stays as it is; only what carries it differs.  A line to a peer offers the few
calls of a socket that a stream makes, and turns each header and each payload into one MPI message.
"""

import os
import time
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey

import torch
from mpi4py import MPI

from course.comm.communicator import Communicator
from course.worlds.mpirun.mpi_backend import MpiNative, pause
from course.worlds.sockets.connect import ProcessWire, own_device

PARTING_S = 0.5


class Line:
    """The messages to and from one peer, in the manner of a socket that does not block.  A message
    of no bytes is its end."""

    def __init__(self, world, peer):
        self.world, self.peer, self.status = world, peer, MPI.Status()
        self.leaving = []  # requests of the frame on its way out
        self.coming, self.landing, self.count = None, None, None  # request, place, bytes once here

    def setblocking(self, _):
        """It never blocks."""

    def sendmsg(self, parts) -> int:
        """Send a frame; the number of its bytes once the program may have them back."""
        if not self.leaving:
            self.leaving = [self._posted(self.world.Isend, part) for part in parts if len(part)]
        if not MPI.Request.Testall(self.leaving):
            raise BlockingIOError
        self.leaving = []
        return sum(map(len, parts))

    def recv_into(self, view) -> int:
        """Receive the next message into `view`, which has its length; its bytes once it is here."""
        if self.coming is None:
            self.coming, self.landing = self._posted(self.world.Irecv, view), view
        if not self._landed():
            raise BlockingIOError
        if self.landing.obj is not view.obj:  # it found its receive while it was coming
            view[: self.count] = self.landing
        count, self.coming, self.count = self.count, None, None
        return count

    def ready(self) -> int:
        """What would not block, as a selector says it."""
        reading = EVENT_READ if self.coming is None or self._landed() else 0
        return reading | (EVENT_WRITE if MPI.Request.Testall(self.leaving) else 0)

    def hang_up(self):
        """Tell the peer that nothing more comes."""
        self.leaving.append(self._posted(self.world.Isend, b""))

    def withdraw(self):
        """Expect nothing more: MPI ends in order only when no receive is open."""
        if self.coming is not None and not self._landed():
            self.coming.Cancel()
            self.coming.Wait()

    def _landed(self) -> bool:
        if self.count is None and self.coming.Test(self.status):
            self.count = self.status.Get_count(MPI.BYTE)
        return self.count is not None

    def _posted(self, post, view):
        try:
            return post([view, MPI.BYTE], self.peer)
        except MPI.Exception as error:
            raise OSError(f"MPI says: {error}") from error


class Lookout:
    """A selector of lines; it cannot sleep on them."""

    def __init__(self):
        self.keys = {}

    def register(self, line, events, stream):
        self.keys[line] = SelectorKey(line, -1, events, stream)

    modify = register

    def unregister(self, line):
        del self.keys[line]

    def select(self) -> list:
        seen = [(key, key.events & line.ready()) for line, key in self.keys.items()]
        return [(key, events) for key, events in seen if events]


class MpiWire(ProcessWire):
    """A process's wire over the MPI communicator `world`."""

    Selector = Lookout

    def __init__(self, world, *, device, timeout, checked):
        lines = {peer: Line(world, peer) for peer in range(world.size) if peer != world.rank}
        settings = {"device": device, "timeout": timeout, "checked": checked}
        super().__init__(world.rank, lines, lanes={}, **settings)
        self.world, self.natives = world, {}

    def native(self, comm):
        """MPI's own collectives on the ranks of `comm`."""
        if comm.name not in self.natives:
            comm.gather_texts("")  # all are here
            members = self.world.group.Incl(comm.members)
            self.natives[comm.name] = MpiNative(comm, self.world.Create_group(members))
        return self.natives[comm.name]

    def abort(self):
        """Tell all peers that this rank is lost to them, and see what was sent off if it goes."""
        with self.inside:
            for stream in self.remote:
                stream.socket.hang_up()
            until = time.monotonic() + PARTING_S
            requests = [request for stream in self.remote for request in stream.socket.leaving]
            while not MPI.Request.Testall(requests) and time.monotonic() < until:
                os.sched_yield()

    def withdraw(self):
        """Leave nothing open, so that MPI can end."""
        for stream in self.remote:
            stream.socket.withdraw()

    def _listen(self, timeout):
        """What lines are ready for, asked again and again; in the pauses others may be inside."""
        start = time.monotonic()
        self.listened = True
        while not (ready := self.selector.select()):
            waited = time.monotonic() - start
            if waited > timeout:
                break
            self.inside.release()
            pause(waited)
            self.inside.acquire()
        self.listened = False
        return ready


def connect(rank, *, device, timeout, checked) -> Communicator:
    """The world's communicator, in which this process of MPI's world is number `rank`."""
    world = MPI.COMM_WORLD.Split(0, rank)
    machines = world.allgather(MPI.Get_processor_name())
    nodes = [list(dict.fromkeys(machines)).index(machine) for machine in machines]
    device = own_device(rank, nodes, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    wire = MpiWire(world, device=device, timeout=timeout, checked=checked)
    return Communicator(wire, range(world.size), nodes)
