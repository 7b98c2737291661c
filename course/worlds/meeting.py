"""Ranks that another launcher has started (srun, torchrun) find one another.

Rank 0 opens a door at an address that all know; the others come in, say where they live and which
door is theirs, and hear the same of all.  Then each rank knocks at the doors of those behind it.
"""

import atexit
import contextlib
import importlib
import os
import socket
import sys
import threading
import time
import traceback
from typing import NamedTuple

from course.comm.communicator import Communicator
from course.comm.errors import CommError
from course.worlds.framing import receive, send
from course.worlds.sockets.connect import connect
from course.worlds.sockets.door import Door, Ticket, address_towards, interface_of, knock

MEET_S = 120.0  # for all ranks to have started
PAUSE_S = 0.1  # between two tries to find rank 0's door
TO_MEET, TO_TALK = b"to the meeting..", b"ranks' own lines"  # of tickets


class Meeting(NamedTuple):
    """That of `size` ranks at rank 0's door, at (host, port), with a secret that all know."""

    rank: int
    size: int
    host: str
    port: int
    secret: bytes

    def join(self, **settings) -> Communicator:
        """The world's communicator.  Raises CommError for who does not come in two minutes."""
        with Door(address_towards(self.host), self.secret) as own:
            people = self._people((socket.gethostname(), own.address))
            ends = {peer: knock(people[peer][1], self._ticket(self.rank, peer), self.secret)
                    for peer in range(self.rank + 1, self.size)}  # fmt: skip
            earlier = {self._ticket(peer, self.rank) for peer in range(self.rank)}
            admitted = own.admit(earlier, MEET_S)
        ends |= {ticket.rank: end for ticket, end in admitted.items()}
        names = list(dict.fromkeys(name for name, _ in people))
        fds = [ends[peer].detach() for peer in sorted(ends)]
        address = own.address[0]
        settings |= {"address": address, "interface": interface_of(address)}
        nodes = [names.index(name) for name, _ in people]
        return connect(self.rank, fds, nodes=nodes, **settings)

    def _ticket(self, rank, peer) -> Ticket:
        return Ticket(TO_TALK, rank, peer)

    def _people(self, mine) -> list:
        """(node, door) of each rank."""
        if self.rank:
            people = None
            with self._rank_0() as line, contextlib.suppress(OSError):
                send(line, mine)
                people = receive(line)
            if people is None:
                raise CommError(f"rank 0 was lost before rank {self.rank} had heard of all others")
            return people
        expected = {Ticket(TO_MEET, rank, 0) for rank in range(1, self.size)}
        with Door(self.host, self.secret, self.port) as door:
            guests = door.admit(expected, MEET_S)
        told = {ticket.rank: receive(line) for ticket, line in guests.items()}
        people = [mine, *(told[rank] for rank in range(1, self.size))]
        for line in guests.values():
            with line, contextlib.suppress(OSError):  # it is gone: its own line will tell
                send(line, people)
        return people

    def _rank_0(self) -> socket.socket:
        """A line to rank 0, once its door is there."""
        deadline, ticket = time.monotonic() + MEET_S, Ticket(TO_MEET, self.rank, 0)
        while True:
            try:
                return knock((self.host, self.port), ticket, self.secret)
            except CommError as error:
                if time.monotonic() > deadline:
                    rule = f"rank {self.rank} did not find rank 0's door"
                    raise CommError(f"{rule}: {error}") from None
            time.sleep(PAUSE_S)


def live(meeting: Meeting, local_ranks: int, name: str):
    """Run `module:function` as a meeting's rank, then end this process: with 1 after a failure."""
    from course.worlds.cores import cores
    from course.worlds.local.rank import flush_files, prepare

    try:
        module, _, function = name.partition(":")
        comm = meeting.join(device=None, timeout=None, checked=True)
        prepare(meeting.rank, {"threads": max(1, cores() // local_ranks)})
        sys.path.insert(0, os.getcwd())
        getattr(importlib.import_module(module), function)(comm)
        comm.finish()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        status = 0
    except BaseException:  # one that calls sys.exit() has failed too
        where = f"rank {meeting.rank} on {socket.gethostname()} failed"
        print(f"{where}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        status = 1
    flush_files()
    os._exit(status)  # in the interpreter's own end a gloo thread with a tensor left would abort it
