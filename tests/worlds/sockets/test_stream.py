"""Frames through a socket, however it cuts them."""

import pytest

from course.comm.transport import Envelope
from course.worlds.sockets.messages import Frame, Kind
from course.worlds.sockets.stream import INBOX_BYTES, Stream


class Wire:
    """What was sent, to be received; it takes and gives `most` bytes at a time."""

    def __init__(self, most):
        self.most, self.bytes = most, bytearray()

    def sendmsg(self, parts):
        count = min(self.most, sum(map(len, parts)))
        self.bytes += b"".join(parts)[:count]
        return count

    def recv_into(self, view):
        if not self.bytes:
            raise BlockingIOError
        count = min(self.most, len(view), len(self.bytes))
        view[:count] = self.bytes[:count]
        del self.bytes[:count]
        return count


@pytest.mark.parametrize("most", [1, 7, 31, 100, 10**6])
def test_headers_and_payloads_come_as_they_went(most):
    wire = Wire(most)
    stream, payloads = Stream(1, wire), [bytes([n]) * (n * 3000) for n in (0, 1, 2, 5)]
    for number, payload in enumerate(payloads):
        envelope = Envelope(8, 3, number, 1, len(payload))
        stream.post(Frame(Kind.DATA, number, envelope, memoryview(payload)))
    assert not stream.outbox
    for number, payload in enumerate(payloads):
        header = None
        while header is None:
            stream.drained = False
            header = stream.next_header()
        assert header == (Kind.DATA, 0, number, 8, 3, number, 1, len(payload))
        got, place = 0, memoryview(bytearray(len(payload)))
        while got < len(payload):
            got += stream.take(place[got:])
        assert bytes(place) == payload


def test_what_is_not_there_is_no_header_and_the_end_is_the_end_of_the_peer():
    wire = Wire(INBOX_BYTES)
    stream = Stream(1, wire)
    assert stream.next_header() is None and not stream.ended
    wire.recv_into = lambda view: 0
    stream.drained = False
    assert stream.next_header() is None and stream.lost and stream.ended


def test_what_a_lost_peer_cannot_take_is_dropped():
    def gone(parts):
        raise ConnectionResetError

    wire = Wire(1)
    wire.sendmsg = gone
    stream = Stream(1, wire)
    stream.post(Frame(Kind.FIN, 0, Envelope(), memoryview(b"")))
    assert not stream.outbox
