"""One end of a stream between two ranks: frames queued to leave, bytes that arrive."""

import struct
from collections import deque

HEADER = struct.Struct("<BBBBiiIQQ")
# kind, dtype, synchronous, by lane, tag, call, number, group, bytes


class Frame:
    """A header on its way out, and its payload unless that goes by lane; `left` bytes to go."""

    def __init__(self, kind, envelope, number, view, synchronous, by_lane):
        group, call, tag, dtype, _ = envelope
        head = HEADER.pack(kind, dtype, synchronous, by_lane, tag, call, number, group, len(view))
        self.parts = [memoryview(head)] if by_lane else [memoryview(head), view]
        self.left = len(head) + len(view)

    def advance(self, count: int):
        self.left -= count
        while self.parts and count >= len(self.parts[0]):
            count -= len(self.parts.pop(0))
        if self.parts:
            self.parts[0] = self.parts[0][count:]


class Stream:
    """This rank's socket to one peer (None: to itself), and the lanes beside it if they share
    memory."""

    def __init__(self, peer: int, socket=None, lanes=(None, None)):
        self.peer, self.socket = peer, socket
        self.lane_out, self.lane_in = lanes
        self.outbox, self.filling = deque(), deque()  # frames; sends whose payload goes by lane
        self.by_lane = deque()  # arrivals whose payload comes by lane
        self.header, self.filled = bytearray(HEADER.size), 0
        self.arriving = None  # the arrival whose payload comes next
        self.arrived = []  # arrivals that nobody has asked for yet, oldest first
        self.shared = {}  # (group, call) -> what the peer says of that call
        self.returned = self.lost = False
        self.moved = 0  # bytes, both ways, headers counted

    @property
    def over(self) -> bool:
        """Whether nothing more will ever come: the peer has returned, or is lost."""
        return self.returned or self.lost

    @property
    def in_the_way(self) -> bool:
        """Whether the lane begins with a message without a place, and one with a place follows."""
        lane = self.by_lane
        return bool(lane) and lane[0].view is None and any(arrival.receive for arrival in lane)

    def first_for(self, receive):
        """The oldest arrival that `receive` is for, if there is one."""
        return next((arrival for arrival in self.arrived if arrival.is_for(receive)), None)

    def flush(self):
        """Hand the kernel as much as it takes; what a lost peer can no longer take is dropped."""
        while self.outbox:
            frame = self.outbox[0]
            try:
                count = self.socket.sendmsg(frame.parts)
            except BlockingIOError:
                return
            except OSError:  # the end of what the peer sent before still has to be read
                return self.outbox.clear()
            self.moved += count
            frame.advance(count)
            if not frame.parts:
                self.outbox.popleft()

    def fill(self, view) -> int:
        """Bytes read into `view`; 0 if there are none now, or never again (then `lost` is set)."""
        try:
            count = self.socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError:
            count = 0
        self.lost = self.lost or count == 0
        self.moved += count
        return count

    def next_header(self):
        """The fields of the next header once all of it is here, else None."""
        while self.filled < HEADER.size:
            count = self.fill(memoryview(self.header)[self.filled :])
            if not count:
                return None
            self.filled += count
        self.filled = 0
        return HEADER.unpack(self.header)
