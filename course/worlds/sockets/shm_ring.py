"""Shared memory between two ranks of a machine, for the payload of large messages.

A ring of bytes is written by one rank and read by the other, from the same place on.  How far, they
tell each other over their socket, which also orders the memory accesses.
"""

import contextlib
import os
from collections import deque

from course.worlds.sockets.shm_window import reserved_bytes

RING_BYTES = 4 << 20
BLOCK_BYTES = 1 << 20  # the most that is written before the reader is told


class ShmRing:
    """One rank's end of a ring: `available` bytes may be written, or read, now."""

    def __init__(self, memory, available: int):
        self.memory, self.available, self.position = memory, available, 0

    def write(self, view) -> int:
        """Copy the beginning of `view` into the ring; how many bytes went in."""
        part = self._next(len(view))
        part[:] = view[: len(part)]
        return len(part)

    def read(self, view) -> int:
        """Copy what comes next out of the ring to the beginning of `view`; how many bytes."""
        part = self._next(len(view))
        view[: len(part)] = part
        return len(part)

    def _next(self, wanted):
        count = min(wanted, self.available, BLOCK_BYTES, len(self.memory) - self.position)
        part = self.memory[self.position : self.position + count]
        self.position = (self.position + count) % len(self.memory)
        self.available -= count
        return part


class ShmRings:
    """The rings `out` to one peer and `into` this rank, and the messages whose payloads go by them,
    in order."""

    def __init__(self, out: ShmRing, into: ShmRing):
        self.out, self.into, self.sends, self.receives = out, into, deque(), deque()

    @property
    def head_of_line_blocked(self) -> bool:
        """Whether the first payload to read has no place, but one behind it has."""
        waiting = self.receives
        return bool(waiting) and waiting[0].buffer is None and any(m.receive for m in waiting)


@contextlib.contextmanager
def reserved(ranks: int):
    """[a file descriptor of memory for all rings of `ranks` ranks and, behind them, their windows],
    if there is such a thing.  Nothing is taken of it until it is written to."""
    if not hasattr(os, "memfd_create"):
        yield []
        return
    with open(os.memfd_create("course-rings"), "wb") as file:
        file.truncate(rings_bytes(ranks) + reserved_bytes(ranks))
        yield [file.fileno()]


def rings_bytes(ranks: int) -> int:
    """What the rings of so many ranks need: one for each ordered pair."""
    return ranks * ranks * RING_BYTES


def rings(memory, rank: int, peers, ranks: int) -> dict:
    """{peer: the rings between it and `rank`} at the beginning of the memory of all."""

    def ring(src, dst, available):
        start = (src * ranks + dst) * RING_BYTES
        return ShmRing(memoryview(memory)[start : start + RING_BYTES], available)

    return {peer: ShmRings(ring(rank, peer, RING_BYTES), ring(peer, rank, 0)) for peer in peers}
