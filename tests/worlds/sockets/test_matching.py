"""Which message is for which receive."""

import pytest

from course.comm.transport import Envelope
from course.worlds.sockets.matching import Matcher
from course.worlds.sockets.messages import IncomingMessage, Kind, Receive


def message(source, tag=0, number=1, call=0, nbytes=4):
    return IncomingMessage(source, Kind.DATA, number, Envelope(2, call, tag, 8, nbytes))


def receive(*sources, tag=0, call=0):
    return Receive(sources, Envelope(2, call, tag, 8, 4), memoryview(bytearray(4)))


def test_a_message_is_for_the_first_receive_that_it_matches():
    matcher, first, second, other = Matcher(), receive(1), receive(1, 2), receive(1, tag=5)
    assert [matcher.post(each) for each in (other, first, second)] == [None] * 3
    assert matcher.match(message(1)) is first and matcher.match(message(1)) is second
    assert matcher.match(message(1)) is None and matcher.posted == [other]


def test_a_receive_is_for_the_oldest_message_of_its_tag_and_rather_for_a_complete_one():
    matcher = Matcher()
    old, new, other, ready = message(1), message(1), message(1, tag=3), message(2, nbytes=0)
    for each in (other, old, new, ready):
        assert matcher.match(each) is None
    assert [matcher.post(receive(1, 2)) for _ in range(3)] == [ready, old, new]
    assert matcher.post(receive(1, 2)) is None and matcher.unexpected[1] == [other]


@pytest.mark.parametrize("change", [{"tag": 1}, {"call": 3}])
def test_tag_and_call_must_agree(change):
    matcher = Matcher()
    matcher.post(receive(1, **change))
    assert matcher.match(message(1)) is None


def test_a_receive_that_was_cancelled_takes_nothing():
    matcher, early = Matcher(), receive(1)
    matcher.post(early)
    matcher.cancel(early)
    assert matcher.match(message(1)) is None


def test_a_call_that_was_revoked_leaves_nothing():
    matcher, left = Matcher(), message(1, call=4)
    matcher.post(receive(2, call=4))
    matcher.match(left), matcher.match(message(1))
    assert matcher.revoke((2, 4)) == [left]
    assert matcher.posted == [] and len(matcher.unexpected[1]) == 1


def test_a_message_that_nobody_asked_for_can_be_taken_back():
    matcher, waiting = Matcher(), message(1, number=7)
    matcher.match(waiting)
    assert matcher.withdraw(1, 8) is None
    assert matcher.withdraw(1, 7) is waiting and matcher.withdraw(1, 7) is None
