"""What a rank sends: frames into streams, long payloads into rings of shared memory."""

from course.comm.transport import Envelope
from course.worlds.sockets.messages import BLANK, SYNCHRONOUS, VIA_SHM, Frame, Kind, Send

SHM_FROM_BYTES = 128 * 1024  # from this a payload goes through shared memory, if there is any


class Sender:
    """The messages of a rank on their way out through its `streams` (by peer)."""

    def __init__(self, streams: dict, poller):
        self.streams, self.poller = streams, poller
        self.awaiting_ack, self.number = {}, 0

    def send(self, peer: int, envelope: Envelope, view, synchronous=False) -> Send:
        """Post `view` [bytes] to `peer`; `synchronous` asks for the receiver's acceptance."""
        self.number, stream = self.number + 1, self.streams[peer]
        via_shm = stream.rings is not None and len(view) >= SHM_FROM_BYTES
        flags = synchronous * SYNCHRONOUS | via_shm * VIA_SHM
        message = Send(peer, envelope, self.number, view, flags)
        if synchronous:
            self.awaiting_ack[self.number] = message
        self._post(stream, message)
        if via_shm:
            stream.rings.sends.append(message)
            self.fill_ring(stream)
        return message

    def tell(self, peer, kind, text="", envelope=BLANK, number=0):
        """Send a frame that is not of the program."""
        view = memoryview(text.encode())
        envelope = Envelope(envelope[0], envelope[1], nbytes=len(view)) if text else envelope
        self._post(self.streams[peer], Frame(kind, number, envelope, view))

    def fill_ring(self, stream):
        """Put into the ring what it has room for, block by block."""
        rings = stream.rings
        while rings.sends and rings.out.available:
            message = rings.sends[0]
            count = rings.out.write(message.payload)
            message.payload = message.payload[count:]
            stream.moved += count
            if not message.payload:
                rings.sends.popleft()
            self.tell(stream.peer, Kind.SHM_DATA, number=count)

    def _post(self, stream, frame):
        stream.post(frame)
        if stream.outbox:
            self.poller.update(stream)
