"""Rows of numbers: every message that came, every wait."""

from types import SimpleNamespace

import numpy

from course.worlds.simulator.log import (
    NO_FLOW,
    NOTHING,
    WAIT,
    MessageLog,
    decode_cause,
    encode_cause,
    pack_wait,
)


def message(src, nbytes, sent, came):
    context = SimpleNamespace(context=SimpleNamespace(index=src))
    envelope = (0, 0, 0, 0, nbytes)
    return SimpleNamespace(src=context, envelope=envelope, sent=sent, came=came)


def test_messages_are_rows_in_the_order_in_which_they_came():
    log, link = MessageLog(), SimpleNamespace(number=7)
    assert log.add(message(3, 100, 0.5, 2.5), 4, link, 1.5) == 0
    assert log.add(message(4, 0, 0.25, 3.0), 3, link, NO_FLOW) == 1
    assert log.messages.tolist() == [
        (3, 4, 7, 100, 0.5, 1.5, 2.5), (4, 3, 7, 0, 0.25, NO_FLOW, 3.0)
    ]  # fmt: skip


def test_a_message_may_be_received_by_another_context():
    log, link = MessageLog(), SimpleNamespace(number=0)
    for src in (1, 2):
        log.add(message(src, 10, 0.0, 1.0), 0, link, 0.5)
    log.readdress(1, 9)
    assert log.messages["dst"].tolist() == [0, 9] and log.messages["src"].tolist() == [1, 2]


def test_causes_of_waits_are_messages_contexts_or_nothing():
    codes = [encode_cause(context) for context in range(5)]
    assert [decode_cause(code) for code in codes] == [0, 1, 2, 3, 4]
    assert all(code < NOTHING for code in codes)
    waits = numpy.frombuffer(pack_wait(1.0, 2.0, 5) + pack_wait(2.0, 4.0, NOTHING), WAIT)
    assert waits.tolist() == [(1.0, 2.0, 5), (2.0, 4.0, NOTHING)]
