"""One end of a stream between two ranks: frames queued to leave, bytes that arrive."""

from collections import deque

from course.worlds.sockets.messages import HEADER

INBOX_BYTES = 8 * 1024  # a header and a short payload come by one call of the kernel


class Stream:
    """This rank's socket to `peer`, and the rings beside it if they share memory."""

    def __init__(self, peer: int, socket, rings=None):
        self.peer, self.socket, self.rings = peer, socket, rings
        self.outbox = deque()  # frames
        self.inbox, self.start, self.end = memoryview(bytearray(INBOX_BYTES)), 0, 0
        self.incoming = None  # the message whose payload comes next
        self.returned = self.lost = self.drained = False
        self.moved = 0  # bytes, both ways, headers counted

    @property
    def ended(self) -> bool:
        """Whether nothing more will ever come: the peer has returned, or is lost."""
        return self.returned or self.lost

    @property
    def paused(self) -> bool:
        """Whether the next payload has no place yet, and so is left to the kernel."""
        return self.incoming is not None and self.incoming.buffer is None

    def post(self, frame):
        """Let a frame leave, after those before it."""
        self.outbox.append(frame)
        if len(self.outbox) == 1:
            self.flush()

    def flush(self):
        """Hand the kernel as much as it takes; what a lost peer can no longer take is dropped."""
        while self.outbox:
            frame = self.outbox[0]
            try:
                count = self.socket.sendmsg(frame.parts)
            except BlockingIOError:
                return None
            except OSError:  # the end of what the peer sent before still has to be read
                return self.outbox.clear()
            self.moved += count
            if frame.advance(count):
                self.outbox.popleft()

    def next_header(self):
        """The fields of the next header once all of it is here, else None."""
        if self.end - self.start < HEADER.size and not self._refill():
            return None
        fields = HEADER.unpack_from(self.inbox, self.start)
        self.start += HEADER.size
        return fields

    def take(self, view) -> int:
        """Bytes moved into `view`; 0 if there are none now, or never again (then it is `lost`)."""
        count = min(len(view), self.end - self.start)
        if not count:
            return self._receive(view)
        view[:count] = self.inbox[self.start : self.start + count]
        self.start += count
        return count

    def _refill(self) -> bool:
        """Whether the inbox holds a header now."""
        left = self.end - self.start
        self.inbox[:left] = bytes(self.inbox[self.start : self.end])
        self.start, self.end = 0, left
        while self.end < HEADER.size and not self.drained:
            self.end += self._receive(self.inbox[self.end :])
        return self.end >= HEADER.size

    def _receive(self, view) -> int:
        try:
            count = self.socket.recv_into(view)
        except BlockingIOError:
            self.drained = True
            return 0
        except OSError:
            count = 0
        self.lost = self.lost or count == 0
        self.drained = count < len(view)  # then the kernel had no more
        self.moved += count
        return count
