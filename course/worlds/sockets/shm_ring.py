"""Shared memory between two ranks of a machine, for the payload of large messages.

A lane is a ring of bytes that one rank fills and the other empties, from the same place on.  How
far, they tell each other over their socket, which also orders the memory accesses.
"""

import mmap
import os

from course.worlds.sockets.shm_window import reserved_bytes

LANE_BYTES = 4 << 20
BLOCK_BYTES = 1 << 20  # the most that is filled before the reader is told


class Lane:
    """One rank's end of a lane: `ready` bytes may be filled (writer) or emptied (reader) now."""

    def __init__(self, memory, ready: int):
        self.memory, self.ready, self.at = memory, ready, 0

    def fill(self, view) -> int:
        """Copy the beginning of `view` into the lane; how many bytes went in."""
        part = self._next(len(view))
        part[:] = view[: len(part)]
        return len(part)

    def empty(self, view) -> int:
        """Copy what comes next out of the lane to the beginning of `view`; how many bytes."""
        part = self._next(len(view))
        view[: len(part)] = part
        return len(part)

    def _next(self, wanted):
        count = min(wanted, self.ready, BLOCK_BYTES, len(self.memory) - self.at)
        part = self.memory[self.at : self.at + count]
        self.at = (self.at + count) % len(self.memory)
        self.ready -= count
        return part


def reserve(ranks: int):
    """A file descriptor of memory for all lanes of `ranks` ranks and, behind them, their grounds;
    None where there is no such thing.  Nothing is taken of it until it is written to."""
    if not hasattr(os, "memfd_create"):
        return None
    fd = os.memfd_create("course-lanes")
    os.truncate(fd, lanes_bytes(ranks) + reserved_bytes(ranks))
    return fd


def lanes_bytes(ranks: int) -> int:
    return ranks * ranks * LANE_BYTES


def lanes(fd: int, rank: int, peers, ranks: int) -> dict:
    """{peer: (lane to it, lane from it)} in the memory behind `fd`."""
    memory = memoryview(mmap.mmap(fd, lanes_bytes(ranks)))

    def lane(src, dst, ready):
        start = (src * ranks + dst) * LANE_BYTES
        return Lane(memory[start : start + LANE_BYTES], ready)

    return {peer: (lane(rank, peer, LANE_BYTES), lane(peer, rank, 0)) for peer in peers}
