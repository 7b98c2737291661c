"""A rank's way to the others over sockets: what it hands on, and to which of its parts.  That it
keeps the contract of all worlds is tested by `tests/worlds/test_transport.py`."""

import threading
from collections import Counter

import pytest
import torch

from course.comm import CommMismatch, CommTimeout, PeerLost
from course.comm.tensors import CODES
from course.comm.transport import BACKGROUND, WORLD, Envelope, group_id
from tests.worlds.sockets.pair import Pair


@pytest.fixture
def pair():
    with Pair() as transports:
        yield transports


def envelope(x, tag=0, call=0):
    return Envelope(WORLD, call, tag, CODES[x.dtype], x.nbytes)


def send(transport, peer, x, synchronous=False, **fields):
    return transport.send_tensor(peer, envelope(x, **fields), x, synchronous)


def receive(transport, peers, x, **fields):
    return transport.receive_tensor(peers, envelope(x, **fields), x)


def received(transport, peers, x, **fields):
    request = receive(transport, peers, x, **fields)
    transport.wait(request, "a receive")
    return request


def at_once(*acts):
    """Several ranks act, each in a thread of its own: what they return."""
    found = [None] * len(acts)

    def note(number, act):
        found[number] = act()

    threads = [threading.Thread(target=note, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_a_place_in_one_piece_is_written_straight(pair):
    x, out = torch.arange(4.0), torch.zeros(2, 2)
    send(pair[0], 1, x)
    request = received(pair[1], (0,), out)
    assert request.unload is None and request.source == 0 and out.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("place", [
    lambda: torch.zeros(4, 2)[:, 1], lambda: torch.zeros(2, 2).T,
    lambda: torch.zeros(4, dtype=torch.complex64).conj(),
])  # fmt: skip
def test_any_other_place_is_written_by_unload_and_not_before(pair, place):
    out = place()
    x = torch.arange(4).to(out.dtype) * (1 + 1j if out.is_complex() else 1)
    send(pair[0], 1, x)
    request = received(pair[1], (0,), out)
    assert out.eq(0).all()
    request.unload()
    assert out.flatten().tolist() == x.tolist()


def test_a_tracked_place_is_written_without_a_trace_in_its_graph(pair):
    out = torch.nn.Parameter(torch.zeros(3, 2)).T
    send(pair[0], 1, torch.arange(6.0))
    received(pair[1], (0,), out).unload()
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_message_that_is_here_is_taken_by_a_receive_that_is_posted_later(pair):
    """Also one that was left in the stream: the receive itself has it come in."""
    x = torch.arange(20_000.0)
    message, out = send(pair[0], 1, x), torch.zeros(20_000)
    send(pair[0], 1, x[:1], tag=2)
    received(pair[1], (0,), torch.zeros(1), tag=2)
    assert received(pair[1], (0,), out).done and message.done and out.equal(x)


def test_what_is_sent_to_oneself_is_what_it_was_then(pair):
    x, out, early = torch.ones(3), torch.zeros(3), torch.zeros(3)
    posted = receive(pair[0], (0,), early, tag=1)
    assert send(pair[0], 0, x, synchronous=True, tag=1).done and posted.done
    assert send(pair[0], 0, x, synchronous=True).done
    x += 1
    assert receive(pair[0], (0, 1), out).source == 0
    assert out.tolist() == early.tolist() == [1, 1, 1]


def test_what_does_not_fit_of_oneself_is_told_and_nothing_goes_out(pair):
    send(pair[0], 0, torch.ones(3))
    with pytest.raises(CommMismatch, match=r"rank 0 is in send to rank 0 \(float32 \[3\], tag 0\)"):
        received(pair[0], (0,), torch.zeros(2))
    assert all(stream.moved == 0 for stream in pair[0].sender.streams.values())


def test_what_has_no_memory_is_refused(pair):
    x, rule = torch.empty(3, device="meta"), "^rank 0: a tensor on the meta device has no memory$"
    for act in (lambda: send(pair[0], 1, x), lambda: receive(pair[0], (1,), x)):
        with pytest.raises(ValueError, match=rule):
            act()
    assert not pair[0].receiver.matcher.posted


def test_sockets_do_not_block(pair):
    """Whatever the kernel has no room for stays in the rank's own queue."""
    message = send(pair[0], 1, torch.zeros(8 << 20))
    assert not message.done and pair[0].sender.streams[1].outbox


def test_what_was_cancelled_takes_nothing_and_waits_for_no_acceptance(pair):
    early, late = torch.zeros(2), torch.zeros(2)
    pair[1].cancel(receive(pair[1], (0,), early))
    pair[0].cancel(send(pair[0], 1, torch.ones(2), synchronous=True))
    assert pair[0].sender.awaiting_ack == {}
    assert received(pair[1], (0,), late).done and early.tolist() == [0, 0] and late.sum() == 2


def test_a_roll_call_is_in_the_order_of_members(pair):
    def said(transport):
        return transport.roll_call(8, 1, (1, 0), f"rank {transport.rank}", "a roll call")

    found = at_once(*[lambda t=t: said(t) for t in pair])
    assert found == [["rank 1", "rank 0"]] * 2
    assert not pair[0].receiver.roll_calls.said  # it is over, and forgotten


def test_the_last_call_is_that_of_the_roll_calls(pair):
    pair[0].last_call[8] += 2
    assert pair[0].last_call is pair[0].receiver.roll_calls.last_call
    assert pair[0].last_call == Counter({8: 2})


def test_a_call_is_revoked_once_for_all_its_members(pair):
    """Whoever hears of it in its own way revokes it, too: it must not go on for ever."""
    waiting = receive(pair[1], (0,), torch.zeros(1), call=3)
    for _ in range(2):
        pair[0].revoke(WORLD, 3, (0, 1), "rank 0 has left")
    moved = pair[0].sender.streams[1].moved
    with pytest.raises(CommMismatch, match="^rank 0 has left$"):
        pair[1].wait(waiting, "a receive")
    pair[1].revoke(WORLD, 3, (0, 1), "rank 1 has left, too")
    assert pair[0].sender.streams[1].moved == moved and not pair[1].sender.streams[0].outbox
    assert pair[1].receiver.revoked == {(WORLD, 3): "rank 0 has left"}


def test_calls_in_the_background_are_counted_as_threads(pair):
    """Who polls tells the others only where there are others."""
    first, second = (pair[0].background(group_id((n,))) for n in range(2))
    assert pair[0].progress.threads == 3 and pair[0].threads == [first, second]
    assert first.transport is pair[0]
    assert [thread.submit(lambda n=n: n) for n, thread in enumerate((first, second))]
    pair[0].finish()
    assert not first.thread.is_alive() and not second.thread.is_alive()


def test_the_memory_of_a_node_is_for_a_ranks_own_calls_and_for_those_of_all_behind_them(pair):
    pair[0].windows = "own", "behind"
    group = (1, '"some"')
    expected = {(): "own", group: "own", (BACKGROUND,): "behind", (*group, BACKGROUND): None}
    assert {path: pair[0].node_memory(group_id(path)) for path in expected} == expected


def test_who_ends_waits_until_all_is_accepted(pair):
    x, out = torch.arange(3.0), torch.zeros(3)
    send(pair[0], 1, x, synchronous=True)
    _, request = at_once(pair[0].finish, lambda: received(pair[1], (0,), out))
    assert request.done and out.equal(x)
    with pytest.raises(PeerLost, match="^rank 0 has returned from its function while rank 1 was"):
        received(pair[1], (0,), out)


def test_who_ends_says_what_it_waits_for():
    with Pair(timeout=0.3) as (first, _):
        send(first, 1, torch.ones(3), synchronous=True, tag=4)
        sentence = r"^rank 0 waited 0.3 s in send to rank 1 \(float32 \[3\], tag 4\)$"
        with pytest.raises(CommTimeout, match=sentence):
            first.finish()


def test_what_an_ending_rank_has_queued_is_flushed(pair):
    x, out = torch.ones(4 << 20), torch.zeros(4 << 20)
    send(pair[0], 1, x)
    assert pair[0].sender.streams[1].outbox
    at_once(pair[0].finish, lambda: received(pair[1], (0,), out))
    assert out.equal(x)


def test_who_leaves_lets_the_poller_know(pair):
    told = []
    pair[0].progress.poller.abort = lambda: told.append("gone")
    pair[0].abort()
    assert told == ["gone"]


def test_native_is_the_backends(pair):
    class Backend:
        def native(self, comm):
            return f"collectives on {comm}"

    pair[0].backend = Backend()
    assert pair[0].native("a group") == "collectives on a group"
