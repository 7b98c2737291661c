"""What a rank sends: messages into streams, payload into lanes."""

import selectors

from course.comm.transport import Envelope
from course.worlds.sockets.messages import LANE_FROM_BYTES, Arrival, Kind, Send
from course.worlds.sockets.stream import Stream

BLANK = Envelope()
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Outgoing:
    """All streams of one rank, and the messages on their way out.

    `sockets`: peer -> connected socket; `lanes`: peer -> (lane to it, lane from it).
    """

    Selector = selectors.DefaultSelector

    def __init__(self, rank: int, sockets: dict, lanes: dict):
        self.rank = rank
        self.streams = {p: Stream(p, s, lanes.get(p, (None, None))) for p, s in sockets.items()}
        self.streams[rank] = Stream(rank)
        self.awaiting_ack, self.number = {}, 0
        self.selector, self.masks = self.Selector(), {}
        for stream in self.remote:
            stream.socket.setblocking(False)
            self._watch(stream)

    @property
    def remote(self) -> list:
        return [stream for stream in self.streams.values() if stream.socket]

    def send(self, peer: int, envelope: Envelope, view, *, synchronous=False) -> Send:
        """Post `view` [bytes] to `peer`; `synchronous` asks for the receiver's acceptance."""
        self.number, stream = self.number + 1, self.streams[peer]
        by_lane = stream.lane_out is not None and len(view) >= LANE_FROM_BYTES
        synchronous = synchronous and peer != self.rank
        message = Send(peer, envelope, self.number, view, synchronous, Kind.DATA, by_lane)
        if synchronous:
            self.awaiting_ack[self.number] = message
        if peer == self.rank:
            self._send_to_self(message, view)
        else:
            self._post(message)
        if by_lane:
            stream.filling.append(message)
            self._fill_lane(stream)
        return message

    def _post(self, message):
        stream = self.streams[message.peer]
        stream.outbox.append(message)
        if len(stream.outbox) == 1:
            stream.flush()
        self._watch(stream)

    def _tell(self, peer, kind, text="", envelope=BLANK, number=0):
        """Send a frame that is not of the program."""
        view = memoryview(text.encode())
        self._post(Send(peer, envelope, number, view, False, kind))

    def _send_to_self(self, message, view):
        """A message to oneself is always set aside: it is done before its receive is posted."""
        arrival = Arrival(self.streams[self.rank], Kind.DATA, message.envelope)
        arrival.view, arrival.got = memoryview(bytes(view)), len(view)
        message.left = 0
        self._place(arrival)

    def _fill_lane(self, stream):
        """Put into the lane what it has room for, block by block."""
        while stream.filling and stream.lane_out.ready:
            message = stream.filling[0]
            count = stream.lane_out.fill(message.payload)
            message.payload = message.payload[count:]
            message.left -= count
            stream.moved += count
            if not message.payload:
                stream.filling.popleft()
            self._tell(stream.peer, Kind.FILLED, number=count)

    def _watch(self, stream):
        """Ask the kernel for exactly the news of this stream that can be acted upon."""
        left_there = stream.arriving is not None and stream.arriving.view is None
        mask = (0 if stream.lost or left_there else READ) | (WRITE if stream.outbox else 0)
        before, self.masks[stream.peer] = self.masks.get(stream.peer, 0), mask
        if mask and before and mask != before:
            self.selector.modify(stream.socket, mask, stream)
        elif mask and not before:
            self.selector.register(stream.socket, mask, stream)
        elif before and not mask:
            self.selector.unregister(stream.socket)
