"""Memory that all ranks of a node share: each has a ground of its own to write, all others read it.

Accesses are parted by meetings.  A word for each pair of ranks says how often the one has been at a
meeting with the other; who comes first sleeps in the kernel until that word changes (a futex).
"""

import ctypes
import mmap
import platform
import threading

import torch

from course.comm.errors import CommError
from course.comm.transport import NODE_MEMORY_BYTES

WORD_BYTES = 64  # apart from one another: each in a cache line of its own
NAP_S = 0.005  # after which a sleeper looks after its sockets
LEFT = 0xFFFFFFFF  # what a word says once a rank has left a call before its end
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
WAIT, WAKE, ALL = 0, 1, 2**31 - 1

libc, fence = ctypes.CDLL(None), threading.Lock()


def reserved_bytes(ranks: int) -> int:
    """What the grounds of `ranks` ranks need, and their words: one for the rank's own calls and one
    for those beside them."""
    return 2 * _bytes_of_one(ranks) if FUTEX else 0


def _bytes_of_one(ranks: int) -> int:
    return ranks * (NODE_MEMORY_BYTES + ranks * WORD_BYTES)


def windows(wire, fd: int, near, ranks: int, start: int) -> list:
    """The windows for a rank's own calls and for those beside, in what follows byte `start` of the
    memory behind `fd`."""
    return [SharedWindow(wire, fd, near, ranks, start + n * _bytes_of_one(ranks)) for n in range(2)]


class SharedWindow:
    """The grounds [bytes] of the ranks `near` and of this one, by rank: `buffers`.

    They are what follows byte `start` of the memory behind `fd`.
    """

    def __init__(self, wire, fd: int, near, ranks: int, start: int):
        self.wire, self.met, self.left = wire, dict.fromkeys(near, 0), False
        memory = mmap.mmap(fd, start + _bytes_of_one(ranks))
        size = ranks * NODE_MEMORY_BYTES
        rows = torch.frombuffer(memory, dtype=torch.uint8, offset=start, count=size)
        self.buffers = {rank: rows.view(ranks, -1)[rank] for rank in (wire.rank, *near)}

        def word(src, dst):
            at = start + size + (src * ranks + dst) * WORD_BYTES
            return ctypes.c_uint32.from_buffer(memory, at)

        self.mine = {peer: word(wire.rank, peer) for peer in near}
        self.theirs = {peer: word(peer, wire.rank) for peer in near}

    def barrier(self, peers, operation):
        """Return once all `peers` are here too: what they wrote before can be read after it.

        Raises CommTimeout and PeerLost as a wait for a message does, CommError if one has left.
        """
        if self.left:
            raise CommError(left_by(self.wire.rank))
        order_memory()
        for peer in peers:
            self.met[peer] += 1
            _set(self.mine[peer], self.met[peer])
        for peer in peers:
            arrival = Arrival(self.theirs[peer], self.met[peer], peer)
            if not arrival.done:
                arrival.nap()
            if not arrival.done or arrival.error:
                self.wire.wait(arrival, operation)
        order_memory()

    def poison(self):
        """Let nobody take what this rank does from now on for a part of a call that has failed."""
        self.left = True
        for word in self.mine.values():
            _set(word, LEFT)


class Arrival:
    """Wait for it until a peer has been at so many meetings."""

    any_of, envelope = False, None

    def __init__(self, word, count, peer):
        self.word, self.count, self.needs = word, count, {peer}

    @property
    def done(self) -> bool:
        return self.word.value >= self.count

    @property
    def error(self):
        if self.word.value != LEFT:
            return None
        return CommError(left_by(*self.needs))

    def nap(self):
        """Sleep until the word changes, at most for NAP_S."""
        now = self.word.value
        if now < self.count:
            _futex(self.word, WAIT, now, ctypes.byref(Timespec(0, int(NAP_S * 1e9))))


def left_by(rank) -> str:
    return (f"rank {rank} has left a collective before its end: nothing can go through the memory "
            "that it shares with its node any more")  # fmt: skip


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


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
    libc.syscall(ctypes.c_long(FUTEX), address, operation, value, timeout, None, 0)
