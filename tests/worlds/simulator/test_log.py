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


def message(src, dst, nbytes, sent, began, came):
    context = SimpleNamespace(context=SimpleNamespace(index=src))
    return SimpleNamespace(
        src=context, key=(dst, src, 0, 0, 0), envelope=(0, 0, 0, 0, nbytes), sent=sent, began=began,
        came=came, bottleneck=SimpleNamespace(number=7),
    )  # fmt: skip


def test_messages_are_rows_in_the_order_in_which_they_came():
    log = MessageLog()
    assert log.add(message(3, 4, 100, 0.5, 1.5, 2.5)) == 0
    assert log.add(message(4, 3, 0, 0.25, NO_FLOW, 3.0)) == 1
    assert log.messages.tolist() == [
        (3, 4, 7, 100, 0.5, 1.5, 2.5), (4, 3, 7, 0, 0.25, NO_FLOW, 3.0)
    ]  # fmt: skip


def test_a_message_may_be_received_by_another_context():
    log = MessageLog()
    for src in (1, 2):
        log.add(message(src, 0, 10, 0.0, 0.5, 1.0))
    log.readdress(1, 9)
    assert log.messages["dst"].tolist() == [0, 9] and log.messages["src"].tolist() == [1, 2]


def test_causes_of_waits_are_messages_contexts_or_nothing():
    codes = [encode_cause(context) for context in range(5)]
    assert [decode_cause(code) for code in codes] == [0, 1, 2, 3, 4]
    assert all(code < NOTHING for code in codes)
    waits = numpy.frombuffer(pack_wait(1.0, 2.0, 5) + pack_wait(2.0, 4.0, NOTHING), WAIT)
    assert waits.tolist() == [(1.0, 2.0, 5), (2.0, 4.0, NOTHING)]
