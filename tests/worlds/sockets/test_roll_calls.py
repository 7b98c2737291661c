"""Which calls ranks are in, and who answers with something else."""

from course.comm.transport import Envelope, group_id
from course.worlds.sockets.messages import Kind
from course.worlds.sockets.roll_calls import RollCalls

GROUP, BEHIND = group_id(()), group_id(("background",))


class Told:
    """A sender that remembers what it tells whom."""

    def __init__(self):
        self.told = []

    def tell(self, peer, kind, text, envelope):
        assert kind == Kind.ROLL_CALL and isinstance(envelope, Envelope)
        self.told.append((peer, text, envelope[:2]))


def test_a_roll_call_is_done_when_everyone_has_spoken():
    sender = Told()
    calls = RollCalls(sender)
    calls.hear(2, (GROUP, 1), "early")
    roll_call = calls.open((GROUP, 1), "mine", [1, 2])
    assert sender.told == [(1, "mine", (GROUP, 1)), (2, "mine", (GROUP, 1))]
    assert not roll_call.done and roll_call.needs == {1}
    calls.hear(1, (GROUP, 1), "late")
    assert roll_call.done and roll_call.said == {1: "late", 2: "early"}


def test_ranks_are_elsewhere_in_calls_that_this_one_has_not_come_to():
    calls = RollCalls(Told())
    calls.last_call[GROUP] = 3
    for number in (3, 4):
        calls.hear(number, (GROUP, number), "barrier\n")
    calls.hear(1, (BEHIND, 9), "in the background: its rank may still send\n")
    assert calls.elsewhere() == {4: (GROUP, 4)}


def test_who_answers_is_counted_in_and_answers_those_who_come_later():
    sender = Told()
    calls = RollCalls(sender)
    calls.hear(2, (GROUP, 5), "barrier #5\n")
    assert calls.answer([(GROUP, 5)], "recv from rank 2") == {2: "barrier #5"}
    calls.hear(0, (GROUP, 5), "barrier #5\n")
    assert sender.told == [(peer, "recv from rank 2\n", (GROUP, 5)) for peer in (2, 0)]
    assert calls.last_call[GROUP] == 5 and calls.elsewhere() == {}
