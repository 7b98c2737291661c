"""Messages in the shape of a tree and of a ring, and the words for other shapes."""

import pytest

from course.classroom.patterns import check_ring, check_tree, only_messages
from course.classroom.problems import Wrong
from course.comm.trace import Event, Trace


def traced(ranks, *messages):
    """The trace of messages (round, src, dst), sent and received within their rounds."""
    trace = Trace()
    trace.add(ranks, [])
    for step, src, dst in messages:
        trace.add(ranks, [Event(src, "send", dst, 0, 8, step, step + 0.3),
                          Event(dst, "recv", src, 0, 8, step + 0.1, step + 0.5)])  # fmt: skip
    return trace


def answer(comm, x):
    pass


def opens_its_own(comm, x):
    with comm.collective("mine"):
        pass


def said(check, *args):
    with pytest.raises(Wrong) as told:
        check(*args)
    return str(told.value)


# Messages, and nothing else


def with_a_collective(name):
    trace = traced(2, (0, 0, 1))
    trace.add(2, [Event(0, name, -1, 0, 0, 0.0, 1.0)])
    return trace


def test_a_collective_that_does_the_work_is_refused():
    trace = with_a_collective("broadcast")
    assert said(only_messages, trace, answer) == (
        "broadcast does the work for you here: build it from messages."
    )
    only_messages(trace, answer, allowed=["broadcast"])
    only_messages(trace, opens_its_own)
    assert "broadcast does" in said(only_messages, trace, len)  # which has no code to look at


def test_where_nothing_was_sent_that_is_said():
    sentence = "no rank has sent a message that another received."
    assert said(only_messages, traced(2), answer) == sentence
    unread = Trace()
    unread.add(2, [Event(0, "send", 1, 0, 8, 0.0, 1.0)])
    assert said(only_messages, unread, answer) == sentence
    only_messages(traced(1), answer)  # alone there is nobody to send to


# Trees


def test_a_tree_passes():
    check_tree("here", traced(4, (0, 0, 2), (1, 0, 1), (1, 2, 3)))
    check_tree("here", traced(5, (0, 0, 1), (1, 0, 2), (1, 1, 3), (2, 0, 4)))


@pytest.mark.parametrize("messages, sentence", [
    (((0, 0, 1), (0, 0, 1), (1, 0, 2), (1, 1, 3)),
     "here, 4 messages were sent where 3 are enough."),
    (((0, 0, 1), (1, 0, 2), (2, 0, 3)),
     "here, the root does all the sending, in 3 steps; 2 are enough."),
    (((0, 0, 1), (1, 1, 2), (2, 2, 3)),
     "here, it takes 3 steps where 2 are enough: in each step, all ranks that have x should send "
     "it on."),
])  # fmt: skip
def test_what_is_no_tree_is_told_by_its_shape(messages, sentence):
    assert said(check_tree, "here", traced(4, *messages)) == sentence


# Rings


def ring(ranks, count):
    return [(step, rank, (rank + 1) % ranks) for step in range(count) for rank in range(ranks)]


@pytest.mark.parametrize("ranks, count", [(2, 2), (3, 4), (4, 6)])
def test_a_ring_passes(ranks, count):
    check_ring(traced(ranks, *ring(ranks, count)), count)


def test_a_message_the_other_way_is_refused():
    trace = traced(4, (0, 1, 0))
    assert said(check_ring, trace, 1) == ("on 4 ranks, rank 1 sends to rank 0: its left neighbour.")
    assert said(check_ring, traced(4, (0, 1, 3)), 1) == (
        "on 4 ranks, rank 1 sends to rank 3: no neighbour."
    )


def test_too_many_messages_and_too_few_are_counted():
    assert said(check_ring, traced(2, *ring(2, 3)), 2) == (
        "on 2 ranks, rank 0 sent 3 messages, not 2."
    )
    assert said(check_ring, traced(2, *ring(2, 1)), 2) == (
        "on 2 ranks, 1 messages of rank 0 were waited for, not 2: an isend is over when its "
        "wait() returns."
    )


@pytest.mark.parametrize("ranks, turns", [(4, 2), (5, 3)])
def test_some_may_receive_before_they_send_but_not_one_after_another(ranks, turns):
    """Two turns, of odd and of even ranks; a third where two even ones are neighbours."""
    in_turns = [(r % 2 if r < ranks - 1 or ranks % 2 == 0 else 2, r, (r + 1) % ranks)
                for r in range(ranks)]  # fmt: skip
    trace = traced(ranks, *sorted(in_turns))
    assert trace.steps == turns
    check_ring(trace, 1)
    one_by_one = traced(ranks, *[(r, r, (r + 1) % ranks) for r in range(ranks)])
    assert said(check_ring, one_by_one, 1) == (
        f"{ranks} ranks took {ranks} steps: let all of them send at once."
    )
