"""What can be waited for: when it is done, what it waits for, who may go on then."""

from course.comm.transport import Envelope
from course.worlds.simulator.flows import Flow, Link, Route
from course.worlds.simulator.log import encode_cause
from course.worlds.simulator.requests import Message, Receive, RollCall

ENVELOPE = Envelope(4, 0, 7, 8, 100)
ROUTE = Route([Link(("a", "b"), 0.5, 100.0), Link(("b", "c"), 0.25, 50.0)])


class Rank:
    """A transport and its context in one."""

    def __init__(self, rank, time=0.0):
        self.rank = self.index = rank
        self.time, self.request, self.outgoing, self.woken = time, None, {}, False

    @property
    def context(self):
        return self

    def wake(self):
        self.woken = True


def test_a_message_and_its_receive_have_one_key():
    message = Message(Rank(2, 1.5), 3, ROUTE, ENVELOPE, None, False)
    receive = Receive(Rank(3, 0.5), (2,), ENVELOPE, None)
    assert message.key == receive.key == (3, 2, 4, 0, 7) and receive.box == (3, 4, 0, 7)
    assert (message.sent, receive.posted, message.dst) == (1.5, 0.5, 3)


def test_a_message_is_a_flow_of_its_bytes_that_begins_after_the_latency():
    message = Message(Rank(2, 1.5), 3, ROUTE, ENVELOPE, None, False)
    flow = Flow(ROUTE, 100, 1.5 + 0.75)
    assert all(getattr(message, name) == getattr(flow, name)
               for name in ("route", "left", "bottleneck", "began", "due"))  # fmt: skip


def test_a_synchronous_message_waits_for_its_receive_any_other_for_none_but_the_living():
    plain, synchronous = (Message(Rank(0), 1, ROUTE, ENVELOPE, None, s) for s in (False, True))
    assert (plain.waits_for(set()), plain.waits_for({1})) == (set(), {1})
    assert synchronous.waits_for(set()) == {1}
    synchronous.receive = object()
    assert synchronous.waits_for(set()) == set()


def test_a_receive_waits_for_its_sources_until_it_has_one():
    receive = Receive(Rank(0), (1, 2), ENVELOPE, None)
    assert receive.any_of and receive.waits_for(set()) == {1, 2}
    receive.source = 2
    assert receive.waits_for(set()) == set()


def test_a_message_is_in_flight_from_when_it_was_sent_until_it_came():
    message = Message(Rank(0, 2.0), 1, ROUTE, ENVELOPE, None, False)
    receive = Receive(Rank(1), (0,), ENVELOPE, None)
    assert [message.in_flight(at) for at in (1.0, 2.0, 9.0)] == [False, True, True]
    assert not receive.in_flight(2.0)
    receive.message = message
    assert receive.in_flight(2.0)
    message.came = 5.0
    assert not receive.in_flight(2.0)


def test_whoever_waits_for_a_request_goes_on_when_it_is_done():
    src, other = Rank(0), Rank(1)
    message = Message(src, 1, ROUTE, ENVELOPE, None, False)
    src.outgoing[message], src.request, other.request = None, message, object()
    message.complete(src, 4.0)
    assert src.woken and message.done and message.at == 4.0 and not src.outgoing
    receive = Receive(other, (0,), ENVELOPE, None)
    receive.complete(other, 4.0)
    assert receive.done and not other.woken


def test_a_roll_call_is_over_with_the_last_by_its_clock():
    roll_call, ranks = RollCall((0, 1, 2)), [Rank(0, 1.0), Rank(1, 5.0), Rank(2, 5.0)]
    for rank in ranks:
        rank.request = roll_call
        assert not roll_call.done
        roll_call.answer(rank, f"text of {rank.rank}")
    assert roll_call.done and roll_call.at == 5.0 and roll_call.cause == encode_cause(1)
    assert all(rank.woken for rank in ranks) and roll_call.texts[2] == "text of 2"
    assert roll_call.waits_for(set()) == set() and RollCall((0, 1)).waits_for(set()) == {0, 1}
