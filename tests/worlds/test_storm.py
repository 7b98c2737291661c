"""Many messages at once, of all sizes, in all orders: everything arrives where it belongs."""

import random

import pytest
import torch

from course.worlds import processes, run

SIZES = [0, 1, 7, 1000, 20_000, 100_000, 400_000, 1_100_000]  # short, by socket, by memory, longer


def storm(comm, seed):
    """Post 40 random messages between all pairs, sends and receives mixed, and wait in any order.

    Messages of one pair and tag keep their order; nothing else does.
    """
    shared, own = random.Random(seed), random.Random(1000 * seed + comm.rank)
    choices = (range(comm.size), range(comm.size), range(3), SIZES)
    planned = [(*map(shared.choice, choices), number) for number in range(40)]
    sends = [("send", *message) for message in planned if message[0] == comm.rank]
    receives = [("recv", *message) for message in planned if message[1] == comm.rank]
    in_order, pending = {}, []
    for post in sends + receives:
        in_order.setdefault(post[:4], []).append(post)
    for post in own.sample(sends + receives, len(sends + receives)):
        pending.append(posted(comm, own, *in_order[post[:4]].pop(0)))
    for handle, out, number in own.sample(pending, len(pending)):
        handle.wait()
        assert out is None or bool((out == number).all())
    return len(pending)


def posted(comm, own, operation, src, dst, tag, size, number):
    """One message begun: its handle, and for a receive its tensor, strided now and then."""
    if operation == "send":
        return comm.isend(torch.full((size,), float(number)), dst, tag), None, number
    out = torch.empty(size, 2)[:, 0] if own.random() < 0.3 else torch.empty(size)
    return comm.irecv(out, src, tag), out, number


@pytest.mark.parametrize("nodes", [None, [0, 0, 1, 1], [0, 1, 2, 3]])
@pytest.mark.parametrize("checked", [True, False])
def test_every_message_of_a_storm_arrives(nodes, checked):
    for seed in range(2):
        posted = run(storm, 4, seed, on=processes(nodes=nodes), checked=checked)
        assert sum(posted) == 80
