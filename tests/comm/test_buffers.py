"""Between isend or irecv and wait() a tensor belongs to its message, and who forgets it is told."""

import re

import pytest
import torch

from course.collectives import all_reduce, broadcast, reduce
from course.comm.buffers import overlap
from course.worlds import RankError, processes, run
from tests.worlds.simulator.clusters import switched

WORLDS = {"shm": processes(), "sockets": processes(nodes=(0, 1)), "imagined": switched(2)}
SEND = r"send to rank 1 \(float32 \[\d+\], tag 0\)"
RECV = r"recv from rank 1 \(float32 \[\d+\], tag {}\)"


def change_what_is_sent(comm, n):
    x = torch.ones(n)
    if comm.rank == 0:
        sending = comm.isend(x, 1)
        x[0] += 1
        sending.wait()
    else:
        comm.recv(x, 0)


def receive_twice_in_one_place(comm, n):
    x = torch.zeros(n)
    if comm.rank == 0:
        handles = [comm.irecv(x, 1, tag) for tag in (1, 2)]
        return [handle.wait() for handle in handles]
    handles = [comm.isend(x, 0, tag) for tag in (1, 2)]
    return [handle.wait() for handle in handles]


def exchange_a_tensor_with_itself(comm, n):
    x = torch.ones(n)
    comm.exchange(x, 1 - comm.rank, x, 1 - comm.rank)


def forget_a_receive(comm, n):
    if comm.rank == 0:
        comm.irecv(torch.zeros(n), 1)
    else:
        comm.send(torch.zeros(n), 0)


def forget_a_receive_beside(comm, n):
    comm.submit(forget_a_receive, n).wait()


def forget_a_send(comm, n):
    if comm.rank == 0:
        comm.isend(torch.zeros(n), 1)
    else:
        comm.recv(torch.zeros(n), 0)


def change_what_a_call_works_on(comm, n, collective):
    x = torch.ones(n)
    call = comm.submit(collective, x)
    x[0] += 1
    call.wait()


MISUSES = {
    change_what_is_sent: rf"rank 0 changed its tensor between {SEND} and the wait\(\)",
    receive_twice_in_one_place: rf"rank 0: {RECV.format(2)} would share memory with "
                                rf"{RECV.format(1)}, whose wait\(\) has not been called",
    exchange_a_tensor_with_itself: rf"rank 0: {SEND} would share memory with {RECV.format(0)}, "
                                   r"whose wait\(\) has not been called",
    forget_a_receive: rf"rank 0 has returned without a wait\(\) for {RECV.format(0)}",
    forget_a_send: rf"rank 0 has returned without a wait\(\) for {SEND}",
    forget_a_receive_beside: rf"rank 0 has returned without a wait\(\) for {RECV.format(0)}",
}  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("misuse", MISUSES)
def test_a_tensor_that_is_not_left_to_its_message_is_named(world, misuse):
    for n in (1, 600_011):
        with pytest.raises(RankError) as caught:
            run(misuse, 2, n, on=WORLDS[world])
        said = caught.value.failures[0]
        assert re.fullmatch(f"ValueError: {MISUSES[misuse]}", said), said


def what_is_allowed(comm):
    """Neighbouring columns, parts of one tensor, one tensor sent twice, and changes in due time."""
    peer, grid, x = 1 - comm.rank, torch.full((4, 3), comm.rank), torch.ones(6)
    comm.exchange(grid[:, 1], peer, grid[:, 2], peer)
    halves = [comm.irecv(half, peer, tag) for tag, half in enumerate(x.split(3))]
    whole = torch.arange(3.0)
    sends = [comm.isend(whole, peer, tag) for tag in range(2)]
    for handle in sends + halves:
        handle.wait()
    whole += 1
    x += 1
    comm.exchange(x[:0], peer, x[:0], peer)
    return grid.tolist(), x.tolist()


@pytest.mark.parametrize("world", WORLDS)
def test_tensors_may_share_memory_that_they_do_not_share(world):
    for rank, (grid, x) in enumerate(run(what_is_allowed, 2, on=WORLDS[world])):
        assert grid == [[rank, rank, 1 - rank]] * 4 and x == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("collective", [all_reduce, broadcast, reduce])
def test_a_tensor_that_is_not_left_to_its_call_is_named(world, collective):
    rule = r"rank \d changed a tensor \(float32 \[\d+\]\) between submit and the wait\(\)"
    with pytest.raises(RankError, match=rule):
        run(change_what_a_call_works_on, 2, 1000, collective, on=WORLDS[world])


def what_calls_may_share(comm):
    """Two calls on one tensor, one after another, and one on parts; a graph knows of the change."""
    x, leaf = torch.ones(4), torch.ones(4, requires_grad=True)
    squares = (leaf * x).sum()
    first, second = comm.submit(all_reduce, x), comm.submit(all_reduce, x)
    first.wait()
    same = second.wait() is None
    parts = [comm.submit(all_reduce, part) for part in (x[:2], x[2:])]
    x[3:] += 0  # a part that is being summed: that cannot be seen
    for part in parts:
        part.wait()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()
    given = comm.submit(lambda beside, y: y, x).wait() is x
    return x[0].item(), same, given, x._version > 0


@pytest.mark.parametrize("world", WORLDS)
def test_calls_may_work_on_the_same_tensor_one_after_another(world):
    assert run(what_calls_may_share, 2, on=WORLDS[world]) == [(8.0, True, True, True)] * 2


@pytest.mark.parametrize("a, b", [
    (lambda x: x[:3], lambda x: x[2:]), (lambda x: x, lambda x: x[5]),
    (lambda x: x[:, 0], lambda x: x[0]), (lambda x: x.T, lambda x: x[:, 1:3]),
])  # fmt: skip
def test_views_that_overlap(a, b):
    x = torch.zeros(6, 4)
    assert overlap(a(x), b(x)) and overlap(b(x), a(x))


@pytest.mark.parametrize("a, b", [
    (lambda x: x[:3], lambda x: x[3:]), (lambda x: x[:, 0], lambda x: x[:, 1]),
    (lambda x: x[::2], lambda x: x[1::2]), (lambda x: x[2:2], lambda x: x),
])  # fmt: skip
def test_views_that_do_not(a, b):
    x = torch.zeros(6, 4)
    assert not overlap(a(x), b(x)) and not overlap(b(x), a(x))
