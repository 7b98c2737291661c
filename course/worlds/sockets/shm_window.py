"""Memory that all ranks of a node share: each has a buffer of its own to write, all others read it.

Barriers part the accesses.  A word for each pair of ranks counts the barriers that the one has
reached with the other; who comes first sleeps in the kernel until that word changes (a futex).
"""

import ctypes
import platform
import threading

import torch

from course.comm.errors import CommError
from course.comm.transport import NODE_MEMORY_BYTES
from course.worlds.sockets.messages import Request

WORD_BYTES = 64  # apart from one another: each in a cache line of its own
# After 5 ms a sleeper looks after its sockets: the kernel's seconds and nanoseconds.
SLEEP = (ctypes.c_long * 2)(0, 5_000_000)
POISONED = 0xFFFFFFFF  # what a word says once a rank has left a call before its end
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
WAIT, WAKE, ALL = 0, 1, 2**31 - 1

libc, fence = ctypes.CDLL(None), threading.Lock()


def reserved_bytes(ranks: int) -> int:
    """What two windows of `ranks` ranks need: one for their own calls, one for the background."""
    return 2 * _window_bytes(ranks) if FUTEX else 0


def _window_bytes(ranks: int) -> int:
    return ranks * (NODE_MEMORY_BYTES + ranks * WORD_BYTES)


def windows(transport, memory, near, ranks: int, start: int) -> list:
    """The windows for a rank's own calls and for those in the background, in what follows byte
    `start` of the memory of all."""
    starts = start, start + _window_bytes(ranks)
    return [SharedWindow(transport, memory, near, ranks, start) for start in starts]


class SharedWindow:
    """The `buffers` [bytes], by rank, of the ranks `near` and of this one.

    They are what follows byte `start` of `memory`, and a word for each pair of ranks follows them.
    """

    def __init__(self, transport, memory, near, ranks: int, start: int):
        self.transport, self.count, self.poisoned = transport, dict.fromkeys(near, 0), False
        me, size = transport.rank, ranks * NODE_MEMORY_BYTES
        rows = torch.frombuffer(memory, dtype=torch.uint8, offset=start, count=size)
        self.buffers = {rank: rows.view(ranks, -1)[rank] for rank in (me, *near)}

        def word(src, dst):
            at = start + size + (src * ranks + dst) * WORD_BYTES
            return ctypes.c_uint32.from_buffer(memory, at)

        self.mine = {peer: word(me, peer) for peer in near}
        self.theirs = {peer: word(peer, me) for peer in near}

    def barrier(self, peers, operation):
        """Return once all `peers` are here too: what they wrote before can be read after it.

        Raises CommTimeout and PeerLost as a wait for a message does, CommError if one has left.
        """
        if self.poisoned:
            raise poisoned_by(self.transport.rank)
        order_memory()
        for peer in peers:
            self.count[peer] += 1
            _set(self.mine[peer], self.count[peer])
        for peer in peers:
            arrival = PeerAtBarrier(self.theirs[peer], self.count[peer], peer)
            if not arrival.done:
                arrival.futex_wait()
            if not arrival.done:
                self.transport.wait(arrival, operation)
        order_memory()

    def poison(self):
        """Let nobody take what this rank does from now on for a part of a call that has failed."""
        self.poisoned = True
        for word in self.mine.values():
            _set(word, POISONED)


class PeerAtBarrier(Request):
    """Done when a peer's word says that it has reached so many barriers."""

    def __init__(self, word, count, peer):
        self.word, self.count, self.needs = word, count, {peer}

    @property
    def done(self) -> bool:
        return self.count <= self.word.value < POISONED

    @property
    def error(self):
        return poisoned_by(*self.needs) if self.word.value == POISONED else None

    def block(self, progress):
        """What it waits for comes by memory; the sockets tell only that the peer is gone."""
        progress.lock.release()
        try:
            self.futex_wait()
        finally:
            progress.lock.acquire()
        progress.poll(0)

    def futex_wait(self):
        """Sleep until the word changes, 5 ms at most (SLEEP)."""
        now = self.word.value
        if now < self.count:
            _futex(self.word, WAIT, now, ctypes.byref(SLEEP))


def poisoned_by(rank) -> CommError:
    """What a rank hears once another has left a collective before its end."""
    rule = "nothing can go through the memory that it shares with its node any more"
    return CommError(f"rank {rank} has left a collective before its end: {rule}")


def order_memory():
    """What was written or read before is so before what comes after, on every processor."""
    for _ in range(2):  # one alone lets in what stands on either side of it
        with fence:
            pass


def _set(word, value):
    word.value = value
    _futex(word, WAKE, ALL)


def _futex(word, operation, value, timeout=None):
    address, value = ctypes.c_void_p(ctypes.addressof(word)), ctypes.c_uint32(value)
    libc.syscall(ctypes.c_long(FUTEX or 0), address, operation, value, timeout, None, 0)
