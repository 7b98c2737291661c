"""Headers, frames that leave in pieces, and when what is waited for is done."""

import pytest

from course.comm.communicator import LAST_TAG
from course.comm.transport import Envelope, group_id
from course.worlds.sockets.messages import (
    BLANK,
    HEADER,
    POLL_S,
    SYNCHRONOUS,
    VIA_SHM,
    Frame,
    IncomingMessage,
    Kind,
    Receive,
    Request,
    Send,
)

ENVELOPE = Envelope(group_id((1, "a")), 3, 7, 8, 12)


def memory(text=b"12 bytes out"):
    return memoryview(bytearray(text))


def left(frame) -> bytes:
    return b"".join(map(bytes, frame.parts))


@pytest.mark.parametrize("envelope", [
    BLANK, ENVELOPE, Envelope(2**64 - 1, 2**31 - 1, LAST_TAG, 255, 2**40),
], ids=["blank", "usual", "largest"])  # fmt: skip
def test_a_header_says_all_of_its_envelope(envelope):
    frame = Frame(Kind.FIN, 2**32 - 1, envelope, b"", SYNCHRONOUS)
    assert HEADER.unpack(left(frame)) == (Kind.FIN, SYNCHRONOUS, 2**32 - 1, *envelope)


def test_a_payload_follows_its_header_unless_it_goes_by_memory():
    assert left(Frame(Kind.DATA, 5, ENVELOPE, memory()))[HEADER.size :] == b"12 bytes out"
    assert len(left(Frame(Kind.DATA, 5, ENVELOPE, memory(), VIA_SHM))) == HEADER.size
    assert len(Frame(Kind.DATA, 5, BLANK, memory(b"")).parts) == 1  # no empty part for the kernel


@pytest.mark.parametrize("most", [1, 5, HEADER.size, HEADER.size + 1, 100])
def test_a_frame_leaves_in_whatever_pieces_the_kernel_takes(most):
    frame, gone = Frame(Kind.DATA, 5, ENVELOPE, memory()), b""
    whole, over = left(frame), False
    while not over:
        count = min(most, len(left(frame)))
        gone += left(frame)[:count]
        over = frame.advance(count)
        assert over == (gone == whole) and gone + left(frame) == whole


def test_what_is_advanced_by_nothing_is_where_it_was():
    frame = Frame(Kind.DATA, 5, ENVELOPE, memory())
    assert not frame.advance(0) and len(left(frame)) == HEADER.size + 12


def test_a_message_is_sent_once_all_of_it_is_gone():
    message = Send(1, ENVELOPE, 5, memory(), 0)
    assert not message.done and message.needs == {1} and not message.any_of
    message.advance(HEADER.size + 11)
    assert not message.done
    message.advance(1)
    assert message.done


def test_by_memory_it_is_sent_once_the_ring_has_taken_it():
    message = Send(1, ENVELOPE, 5, memory(), VIA_SHM)
    assert message.advance(HEADER.size) and not message.done
    message.payload = message.payload[12:]
    assert message.done


def test_a_synchronous_message_is_sent_once_it_is_accepted_too():
    message = Send(1, ENVELOPE, 5, memory(), SYNCHRONOUS)
    message.advance(HEADER.size + 12)
    assert not message.done
    message.accepted = True
    assert message.done


def test_a_receive_needs_all_it_names_or_one_of_them():
    one, any_of = Receive((2,), ENVELOPE, memory()), Receive((0, 2), ENVELOPE, memory())
    assert (one.any_of, any_of.any_of) == (False, True)
    assert not one.done and one.error is None and one.source is None and one.unload is None


def test_to_wait_is_to_poll_for_a_while():
    waited = []

    class Progress:
        def poll(self, timeout_s):
            waited.append(timeout_s)

    Request().block(Progress())
    assert waited == [POLL_S]


def incoming(**changes):
    return IncomingMessage(2, Kind.DATA, 5, ENVELOPE._replace(**changes))


@pytest.mark.parametrize("change", [{"group": 4}, {"call": 4}, {"tag": 4}])
def test_a_message_is_for_a_receive_of_its_group_call_and_tag(change):
    receive = Receive((1, 2), ENVELOPE, memory())
    assert incoming().matches(receive)
    assert not incoming(**change).matches(receive)
    assert not incoming().matches(Receive((1, 3), ENVELOPE, memory()))


@pytest.mark.parametrize("change", [{"dtype": 4}, {"nbytes": 4}])
def test_of_another_dtype_or_length_it_is_for_it_all_the_same(change):
    """For they do not fit then, which both ends are to be told."""
    assert incoming(**change).matches(Receive((2,), ENVELOPE, memory()))


def test_a_message_is_complete_with_its_last_byte():
    message = incoming()
    message.got = 11
    assert not message.complete
    message.got = 12
    assert message.complete and incoming(nbytes=0).complete


def test_what_is_set_aside_has_a_buffer_of_its_own_and_keeps_it():
    message = incoming()
    message.set_aside()
    buffer = message.buffer
    assert len(buffer) == 12 and not buffer.readonly
    message.set_aside()
    assert message.buffer is buffer


@pytest.mark.parametrize("aside", [True, False])
def test_a_complete_message_is_delivered_and_says_from_whom(aside):
    message, receive = incoming(), Receive((1, 2), ENVELOPE, memory(b"." * 12))
    message.receive, message.buffer, message.got = receive, receive.view, 12
    if aside:
        message.buffer = memory()
    message.deliver()
    assert bytes(receive.view) == (b"12 bytes out" if aside else b"." * 12)
    assert receive.done and receive.source == 2
