"""Which streams have news, by the kernel's word."""

import selectors
from typing import Protocol

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def interest(stream) -> int:
    """The news of a stream that can be acted upon."""
    incoming = stream.incoming
    reading = not stream.lost and (incoming is None or incoming.buffer is not None)
    return reading * READ | bool(stream.outbox) * WRITE


class Poller(Protocol):
    """What tells a rank the news of its streams.  Time-outs are in seconds."""

    def update(self, stream): ...  # what is of interest in it has changed
    def poll(self, timeout_s: float, lock) -> list: ...  # [(stream, what it is ready for)]
    def abort(self): ...  # the rank has failed: its peers are to hear of its end


class SocketPoller:
    """Streams over sockets; the kernel wakes a rank that sleeps."""

    def __init__(self):
        self.selector, self.watched = selectors.DefaultSelector(), {}

    def update(self, stream):
        """Ask for exactly the news of this stream that can be acted upon."""
        mask, before = interest(stream), self.watched.get(stream.peer, 0)
        if mask == before:
            return
        self.watched[stream.peer] = mask
        if not before:
            self.selector.register(stream.socket, mask, stream)
        elif mask:
            self.selector.modify(stream.socket, mask, stream)
        else:
            self.selector.unregister(stream.socket)

    def poll(self, timeout_s, lock) -> list:
        """[(stream, what it is ready for)], waiting for some without the lock."""
        lock.release()
        try:
            return [(key.data, mask) for key, mask in self.selector.select(timeout_s)]
        finally:
            lock.acquire()

    def abort(self):
        """Nothing to do: the kernel closes this rank's sockets, and peers read their end."""
