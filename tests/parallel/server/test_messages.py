"""Messages: heads by hand; requests and replies, also of those who are lost at any moment."""

import pytest
import torch

from course.comm import ANY
from course.parallel.server.messages import (
    REPLY_BYTES,
    REQUEST_BYTES,
    Replies,
    ReplyHead,
    Request,
    RequestHead,
    Tag,
    handle_requests,
    head,
)
from course.worlds import RankError, run
from tests.worlds.simulator.clusters import slowly


def test_heads_by_hand():
    said = head(*RequestHead(Request.PUSH, version=3, samples=64))
    assert said.tolist() == [1, 3, 64] and said.nbytes == REQUEST_BYTES == 24
    assert head(*ReplyHead()).tolist() == [0, 0, -1, 0]
    assert head(*ReplyHead()).nbytes == REPLY_BYTES == 32


def echoing(comm, elements, rounds):
    """Rank 0 sends back what the others push, doubled, with each pull; who has ended, and how."""
    ended, delta = [], torch.zeros(elements)
    if comm.rank == 0:
        clients, replies = set(range(1, comm.size)), Replies(comm)

        def dispatch(client, request):
            if request == Request.PUSH:
                comm.recv(delta, client, Tag.DELTA)
            elif request == Request.PULL:
                replies.send(client, {Tag.VALUES: 2 * delta})
            else:
                clients.remove(client)
                ended.append((client, request))
                replies.settle([client])

        handle_requests(comm, clients, 1, dispatch)
        return ended
    for number in range(rounds):
        comm.send(head(Request.PUSH), 0, Tag.HEAD)
        comm.send(torch.full((elements,), float(number)), 0, Tag.DELTA)
        comm.send(head(Request.PULL), 0, Tag.HEAD)
        comm.recv(delta, 0, Tag.VALUES)
    comm.send(head(Request.STOP), 0, Tag.HEAD)
    return delta.unique().tolist()


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("elements", [3, 300_011])
def test_what_is_pushed_comes_back(elements, checked):
    ended, delta = run(echoing, 2, elements, 3, checked=checked)
    assert ended == [(1, Request.STOP)] and delta == [4.0]


@pytest.mark.parametrize("second", [0.5 + step for step in range(12)])
def test_a_client_that_is_lost_at_any_moment_asks_to_fail_and_the_others_go_on(second):
    """Before, between and amid its messages of a second each, and while it is answered."""
    with pytest.raises(RankError) as caught:
        run(echoing, 3, 3, 3, on=slowly(3, dead={2: second}))
    assert set(caught.value.failures) == {2}
    assert sorted(caught.value.values[0]) == [(1, Request.STOP), (2, Request.FAIL)]


def nobody_asks(comm):
    if comm.rank == 0:
        handle_requests(comm, {1}, 1, None)
    comm.recv(torch.zeros(1), ANY)


def test_a_server_does_not_wait_for_ever():
    with pytest.raises(RankError, match="CommTimeout|Deadlock"):
        run(nobody_asks, 2, timeout=0.5)
