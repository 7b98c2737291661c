"""What arrives: where its bytes land, what is left in the stream, and what peers are told."""

import socket
from types import SimpleNamespace

import pytest

from course.comm import CommMismatch
from course.comm.transport import Envelope
from course.worlds.sockets.matching import Matcher
from course.worlds.sockets.messages import (
    BLANK,
    HEADER,
    SYNCHRONOUS,
    VIA_SHM,
    Kind,
    Receive,
    Send,
)
from course.worlds.sockets.receiving import SHORT_BYTES, Receiver
from course.worlds.sockets.shm_ring import ShmRing, ShmRings
from course.worlds.sockets.stream import INBOX_BYTES, Stream

PEER, LONG = 1, SHORT_BYTES + 8  # of int64s: 8 bytes more than what is set aside at once
INT64 = 4


class Sender:
    """Remembers what is told to whom; its messages wait for acceptance by number."""

    def __init__(self, streams):
        self.streams, self.awaiting_ack, self.told, self.filled = streams, {}, [], []

    def tell(self, peer, kind, text="", envelope=BLANK, number=0):
        self.told.append((peer, kind, text, number))

    def fill_ring(self, stream):
        self.filled.append(stream.peer)


class End:
    """The receiver of rank 0, with one stream, and the other end of its socket."""

    def __init__(self, ends, ring_bytes=0):
        ours, self.theirs = ends
        ours.setblocking(False)
        self.memory = memoryview(bytearray(ring_bytes))
        rings = ShmRings(ShmRing(self.memory, 0), ShmRing(self.memory, 0)) if ring_bytes else None
        self.stream = Stream(PEER, ours, rings)
        self.sender, self.matcher, self.heard = Sender({PEER: self.stream}), Matcher(), []
        calls = SimpleNamespace(hear=lambda *said: self.heard.append(said))
        poller = SimpleNamespace(update=lambda stream: None)
        self.receiver = Receiver(0, self.sender, poller, self.matcher, calls)

    def comes(self, kind, number=0, payload=b"", flags=0, **fields):
        """A frame comes, and is read."""
        self.theirs.sendall(framed(kind, number, payload, flags, **fields))
        self.receiver.read(self.stream)

    def post(self, nbytes, sources=(PEER,), **fields):
        """A receive is posted, and bound to its message if that is here."""
        place = memoryview(bytearray(nbytes))
        receive = Receive(sources, Envelope(dtype=INT64, nbytes=nbytes)._replace(**fields), place)
        message = self.matcher.post(receive)
        if message is not None:
            self.receiver.bind(message, receive)
            self.receiver.resume(self.stream)
        return receive

    @property
    def unexpected(self):
        return self.matcher.unexpected[PEER]


def framed(kind, number, payload, flags=0, **fields) -> bytes:
    envelope = Envelope(dtype=INT64, nbytes=len(payload))._replace(**fields)
    return HEADER.pack(kind, flags, number, *envelope) + (b"" if flags & VIA_SHM else payload)


def numbers(nbytes) -> bytes:
    return (bytes(range(251)) * (nbytes // 251 + 1))[:nbytes]


@pytest.fixture
def ends():
    pair = socket.socketpair()
    with pair[0], pair[1]:
        yield pair


@pytest.fixture
def end(ends):
    return End(ends)


# Where bytes land


@pytest.mark.parametrize("nbytes", [0, 8, INBOX_BYTES, LONG])
def test_what_is_asked_for_lands_in_its_place(end, nbytes):
    receive = end.post(nbytes)
    assert not receive.done
    end.comes(Kind.DATA, 3, numbers(nbytes))
    assert receive.done and receive.source == PEER and bytes(receive.view) == numbers(nbytes)
    assert end.sender.told == []


def test_it_lands_without_a_stop_on_the_way(end):
    """Long messages must not be copied: the place itself is the buffer."""
    receive = end.post(LONG)
    end.theirs.sendall(framed(Kind.DATA, 1, numbers(LONG))[:-8])
    end.receiver.read(end.stream)
    assert end.stream.incoming.buffer is receive.view and not receive.done
    assert bytes(receive.view[:-8]) == numbers(LONG)[:-8]


def test_what_is_short_is_set_aside_until_it_is_asked_for(end):
    end.comes(Kind.DATA, 1, numbers(SHORT_BYTES))
    assert end.unexpected[0].complete and not end.stream.paused and not end.receiver.held
    receive = end.post(SHORT_BYTES)
    assert receive.done and bytes(receive.view) == numbers(SHORT_BYTES)


def test_what_is_long_is_left_to_its_sender_until_it_is_asked_for(end):
    end.comes(Kind.DATA, 1, numbers(LONG))
    assert end.unexpected[0].got == 0 and end.stream.paused and end.receiver.held == {end.stream}
    end.comes(Kind.DATA, 2, numbers(8), tag=2)
    assert len(end.unexpected) == 1  # what comes behind it stays behind it
    receive = end.post(LONG)
    assert receive.done and bytes(receive.view) == numbers(LONG)
    assert [message.envelope.tag for message in end.unexpected] == [2] and not end.receiver.held


def test_what_stands_before_the_awaited_is_set_aside_at_need(end):
    end.comes(Kind.DATA, 1, numbers(LONG))
    receive = end.post(8, tag=2)
    end.comes(Kind.DATA, 2, numbers(8), tag=2)
    end.receiver.unblock({PEER + 1})
    assert not receive.done  # the peer that it stands before is awaited by nobody
    end.receiver.unblock({PEER})
    assert receive.done and bytes(receive.view) == numbers(8)
    late = end.post(LONG)
    assert late.done and bytes(late.view) == numbers(LONG)


def test_a_message_that_comes_in_pieces_is_one_message(end):
    receive, whole = end.post(100), framed(Kind.DATA, 1, numbers(100))
    for at in range(0, len(whole), 7):
        assert not receive.done
        end.theirs.sendall(whole[at : at + 7])
        end.receiver.read(end.stream)
    assert receive.done and bytes(receive.view) == numbers(100)


# What peers are told


@pytest.mark.parametrize("first", ["message", "receive"])
def test_acceptance_is_told_when_there_is_a_place_and_not_before(end, first):
    if first == "receive":
        end.post(8)
    end.comes(Kind.DATA, 44, numbers(8), SYNCHRONOUS)
    assert end.sender.told == ([] if first == "message" else [(PEER, Kind.ACK, "", 44)])
    if first == "message":
        end.post(8)
    assert end.sender.told == [(PEER, Kind.ACK, "", 44)]


MISFIT = ("rank 0 is in recv from rank 1 (int64 [2], tag 0); "
          "rank 1 is in send to rank 0 (int64 [1], tag 0)")  # fmt: skip


@pytest.mark.parametrize("flags", [0, SYNCHRONOUS])
def test_what_does_not_fit_is_refused_at_both_ends_and_nothing_is_written(end, flags):
    receive = end.post(16)
    end.comes(Kind.DATA, 44, numbers(8), flags)
    assert isinstance(receive.error, CommMismatch) and str(receive.error) == MISFIT
    assert not receive.done and bytes(receive.view) == bytes(16)
    assert end.sender.told == [(PEER, Kind.NACK, MISFIT, 44)]
    assert end.unexpected == [] and end.stream.incoming is None  # thrown away


@pytest.mark.parametrize("change", [{"dtype": 8}, {"nbytes": LONG + 8}])
def test_a_long_one_of_another_dtype_or_length_is_thrown_away_whole(end, change):
    receive = end.post(**{"nbytes": LONG} | change)
    end.comes(Kind.DATA, 1, numbers(LONG))
    assert isinstance(receive.error, CommMismatch) and not any(receive.view)
    after = end.post(8)
    end.comes(Kind.DATA, 2, numbers(8))
    assert after.done


def test_within_a_call_the_misfit_is_left_to_the_calls_own_end(end):
    """All its ranks hear of that: a word to the sender alone would be heard in a later call."""
    receive = end.post(16, call=3)
    end.comes(Kind.DATA, 44, numbers(8), call=3)
    assert isinstance(receive.error, CommMismatch) and end.sender.told == []


# Frames that are not of the program


def a_send(end, number):
    message = Send(PEER, BLANK, number, b"", SYNCHRONOUS)
    end.sender.awaiting_ack[number] = message
    return message


def test_an_acceptance_is_of_the_message_that_it_names(end):
    other, mine = a_send(end, 4), a_send(end, 5)
    end.comes(Kind.ACK, 5)
    assert mine.accepted and not other.accepted and end.sender.awaiting_ack == {4: other}
    end.comes(Kind.ACK, 6)  # whose sender has given up
    assert not other.accepted


def test_a_refusal_says_why_or_that_nobody_wants_the_message(end):
    misfit, unwanted = a_send(end, 4), a_send(end, 5)
    end.comes(Kind.NACK, 4, "does not fit, ä".encode())
    end.comes(Kind.NACK, 5)
    assert isinstance(misfit.error, CommMismatch) and str(misfit.error) == "does not fit, ä"
    assert unwanted.unwanted and unwanted.error is None
    assert not misfit.accepted and end.receiver.pending_error is None


def test_a_refusal_of_what_nobody_waits_for_any_more_is_told_in_the_next_wait(end):
    end.comes(Kind.NACK, 9, b"does not fit")
    end.comes(Kind.NACK, 10)  # says nothing, and takes nothing back
    assert end.receiver.pending_error == "does not fit"


def test_a_message_without_a_place_is_given_back_when_its_sender_asks(end):
    end.comes(Kind.DATA, 7, numbers(8), SYNCHRONOUS)
    end.comes(Kind.PROBE, 8)  # not here (yet), or it has a place
    assert end.sender.told == [] and len(end.unexpected) == 1
    end.comes(Kind.PROBE, 7)
    assert end.sender.told == [(PEER, Kind.NACK, "", 7)] and end.unexpected == []
    assert not end.post(8).done


def test_what_a_rank_says_of_a_call_is_heard(end):
    end.comes(Kind.ROLL_CALL, 0, "barrier #3\nä".encode(), group=2**63, call=3)
    assert end.heard == [(PEER, (2**63, 3), "barrier #3\nä", 0)]


def test_a_call_that_was_revoked_takes_and_leaves_nothing(end):
    waiting = end.post(16, group=2, call=3)
    end.comes(Kind.DATA, 1, numbers(LONG), group=2, call=3, tag=1)  # nobody has asked for it
    end.comes(Kind.REVOKE, 0, b"a rank has left", group=2, call=3)
    assert end.receiver.revoked == {}  # it stands behind what nobody takes
    end.receiver.unblock({PEER})
    assert end.receiver.revoked == {(2, 3): "a rank has left"}
    assert waiting not in end.matcher.posted and end.unexpected == []
    end.comes(Kind.DATA, 2, numbers(LONG), group=2, call=3)  # late
    assert end.unexpected == [] and end.stream.incoming is None
    other = end.post(8, group=2, call=4)
    end.comes(Kind.DATA, 3, numbers(8), group=2, call=4)
    assert other.done


def test_what_was_left_in_the_stream_goes_when_its_call_is_revoked(end):
    end.comes(Kind.DATA, 1, numbers(LONG), group=2, call=3)
    after = end.post(8)
    end.comes(Kind.DATA, 2, numbers(8))
    assert not after.done
    end.receiver.revoke((2, 3), "this rank has left")
    assert after.done and end.unexpected == [] and not end.receiver.held


def test_who_has_returned_and_who_was_lost_are_ended(end):
    end.comes(Kind.FIN)
    assert end.receiver.ended == {PEER} and end.stream.returned and not end.stream.lost
    end.theirs.close()
    end.receiver.read(end.stream)
    assert end.stream.lost


def test_what_came_before_the_end_is_still_received(end):
    receive = end.post(8)
    end.theirs.sendall(framed(Kind.DATA, 1, numbers(8)) + framed(Kind.FIN, 0, b"")[:10])
    end.theirs.close()
    for _ in range(2):  # the kernel tells of the end apart from what came before it
        end.receiver.read(end.stream)
    assert receive.done and end.stream.lost and end.receiver.ended == {PEER}


# By shared memory


def written(end, data):
    """The peer has put bytes into the ring, and says so."""
    place = end.stream.rings.into.position + end.stream.rings.into.available
    for n, byte in enumerate(data):
        end.memory[(place + n) % len(end.memory)] = byte
    end.comes(Kind.SHM_DATA, len(data))


def test_a_payload_by_memory_lands_in_its_place_and_its_room_is_given_back(ends):
    end = End(ends, ring_bytes=100)
    receive, data = end.post(150), numbers(150)
    end.comes(Kind.DATA, 1, data, VIA_SHM)
    for part in (data[:70], data[70:120], data[120:]):
        assert not receive.done
        written(end, part)
    assert receive.done and bytes(receive.view) == data
    room = [number for _, kind, _, number in end.sender.told if kind == Kind.SHM_CREDIT]
    assert sum(room) == 150 and end.stream.moved >= 150 and not end.stream.rings.receives


def test_what_nobody_has_asked_for_is_left_in_the_ring(ends):
    end = End(ends, ring_bytes=2 * LONG)
    first, second = numbers(LONG), numbers(LONG)[::-1]
    end.comes(Kind.DATA, 1, first, VIA_SHM)
    end.comes(Kind.DATA, 2, second, VIA_SHM, tag=2)
    written(end, first + second)
    assert end.sender.told == [] and end.receiver.held == {end.stream}
    wanted = end.post(LONG, tag=2)
    assert not wanted.done  # it stands behind the other
    end.receiver.unblock({PEER})
    assert wanted.done and bytes(wanted.view) == second
    late = end.post(LONG)
    assert late.done and bytes(late.view) == first and not end.receiver.held


def test_room_in_the_ring_lets_the_sender_go_on(ends):
    end = End(ends, ring_bytes=100)
    end.comes(Kind.SHM_CREDIT, 60)
    assert end.stream.rings.out.available == 60 and end.sender.filled == [PEER]
