"""What leaves a rank: by which way, in what order, and what waits for room."""

import socket

import pytest

from course.comm.transport import Envelope
from course.worlds.sockets import shm_ring
from course.worlds.sockets.messages import HEADER, SYNCHRONOUS, VIA_SHM, Kind
from course.worlds.sockets.sending import SHM_FROM_BYTES, Sender
from course.worlds.sockets.shm_ring import ShmRing, ShmRings
from course.worlds.sockets.stream import Stream

RING_BYTES = 1000  # of these tests; SHM_FROM_BYTES is made to be 100
SHORT, LONG = memoryview(b"a" * 99), memoryview(bytes(range(250)) * 10)


class Poller:
    """Remembers which streams it was told of."""

    def __init__(self):
        self.updated = []

    def update(self, stream):
        self.updated.append(stream.peer)


class Way:
    """A sender's one stream, to peer 1, and what comes out at its end."""

    def __init__(self, ends, with_rings=True):
        ours, self.theirs = ends
        for end in ends:
            end.setblocking(False)
        self.memory = memoryview(bytearray(RING_BYTES))
        rings = ShmRings(ShmRing(self.memory, RING_BYTES), ShmRing(self.memory, 0))
        self.stream = Stream(1, ours, rings if with_rings else None)
        self.poller = Poller()
        self.sender = Sender({1: self.stream}, self.poller)

    def arrived(self) -> bytes:
        try:
            return self.theirs.recv(1 << 20)
        except BlockingIOError:
            return b""

    def headers(self) -> list:
        """(kind, flags, number) of what has come, where nothing but headers has."""
        got = self.arrived()
        assert len(got) % HEADER.size == 0
        return [fields[:3] for fields in HEADER.iter_unpack(got)]


@pytest.fixture
def ends():
    pair = socket.socketpair()
    with pair[0], pair[1]:
        yield pair


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("course.worlds.sockets.sending.SHM_FROM_BYTES", 100)
    monkeypatch.setattr(shm_ring, "BLOCK_BYTES", 400)


def envelope(view):
    return Envelope(8, 0, 3, 0, len(view))


def test_messages_are_numbered_in_the_order_in_which_they_are_sent(ends):
    way = Way(ends)
    messages = [way.sender.send(1, envelope(SHORT), SHORT) for _ in range(3)]
    assert [message.number for message in messages] == [1, 2, 3]
    assert all(message.done for message in messages)  # the kernel has taken them
    size = HEADER.size + len(SHORT)
    got = way.arrived()
    assert len(got) == 3 * size and got[HEADER.size : size] == bytes(SHORT)


def test_the_limit_between_the_two_ways_is_that_of_the_module(ends):
    assert SHM_FROM_BYTES == 128 * 1024  # above what is set aside at once: see Receiver
    way = Way(ends)
    below = way.sender.send(1, envelope(SHORT), SHORT)
    from_it = way.sender.send(1, envelope(LONG[:100]), LONG[:100])
    assert not below.payload and list(way.stream.rings.sends) == []
    assert bytes(way.memory[:100]) == bytes(LONG[:100]) and from_it.done


def test_what_goes_by_memory_is_told_block_by_block_behind_its_header(ends):
    way = Way(ends)
    message = way.sender.send(1, envelope(LONG), LONG)
    assert way.headers() == [
        (Kind.DATA, VIA_SHM, 1), (Kind.SHM_DATA, 0, 400), (Kind.SHM_DATA, 0, 400),
        (Kind.SHM_DATA, 0, 200),
    ]  # fmt: skip
    assert not message.done and bytes(way.memory) == bytes(LONG[:1000])
    assert way.stream.moved >= 1000  # else a long wait would pass for one in which nothing moves


def test_what_the_ring_has_no_room_for_goes_when_it_has(ends):
    way = Way(ends)
    first, second = (way.sender.send(1, envelope(LONG), LONG) for _ in range(2))
    way.arrived()
    got, rings = bytes(way.memory), way.stream.rings
    assert list(rings.sends) == [first, second]
    while rings.sends:
        place, rings.out.available = rings.out.position, 400  # as if so much had been read
        way.sender.fill_ring(way.stream)
        assert sum(count for _, _, count in way.headers()) == 400
        got += (bytes(way.memory) * 2)[place : place + 400]
        assert first.done or not second.done
    assert got == bytes(LONG) * 2 and first.done and second.done


def test_without_memory_all_goes_by_the_socket(ends):
    way = Way(ends, with_rings=False)
    message = way.sender.send(1, envelope(LONG), LONG)
    assert message.done and way.arrived()[HEADER.size :] == bytes(LONG)


def test_who_asks_for_acceptance_is_remembered_until_it_comes(ends):
    way = Way(ends)
    way.sender.send(1, envelope(SHORT), SHORT)
    asked = way.sender.send(1, envelope(SHORT), SHORT, synchronous=True)
    assert way.sender.awaiting_ack == {2: asked} and not asked.done


def test_acceptance_is_asked_for_in_the_header(ends):
    way = Way(ends)
    way.sender.send(1, envelope(LONG), LONG, synchronous=True)
    assert way.headers()[0] == (Kind.DATA, SYNCHRONOUS | VIA_SHM, 1)


def test_words_are_told_with_their_length_in_bytes(ends):
    way = Way(ends)
    way.sender.tell(1, Kind.ROLL_CALL, "ä: barrier", Envelope(8, 5, 3, 2, 999))
    got = way.arrived()
    assert HEADER.unpack_from(got) == (Kind.ROLL_CALL, 0, 0, 8, 5, 0, 0, 11)
    assert got[HEADER.size :].decode() == "ä: barrier"


def test_without_words_only_the_number_is_told(ends):
    way = Way(ends)
    way.sender.tell(1, Kind.ACK, number=77)
    assert HEADER.unpack(way.arrived()) == (Kind.ACK, 0, 77, 0, 0, 0, 0, 0)


def test_the_poller_hears_of_a_stream_only_while_something_waits_in_it(ends):
    way = Way(ends, with_rings=False)
    way.sender.send(1, envelope(SHORT), SHORT)
    assert way.poller.updated == []
    huge = memoryview(bytearray(32 << 20))
    message = way.sender.send(1, envelope(huge), huge)
    assert way.poller.updated == [1] and not message.done
    way.sender.tell(1, Kind.FIN)
    assert len(way.stream.outbox) == 2  # in order, behind it
