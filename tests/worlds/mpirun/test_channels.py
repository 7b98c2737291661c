"""Messages over MPI: they find their receives whenever these come."""

import pytest
import torch

from course.worlds import mpi, run
from tests.worlds.test_stop import wait_until

pytest.importorskip("mpi4py")


def late_receive(comm):
    """A message begins to come for nobody, since one is awaited behind it, and then finds its
    receive."""
    long = torch.arange(1_000_000.0)
    if comm.rank == 0:
        first = comm.isend(long, 1, tag=1)
        comm.isend(long + 1, 1, tag=2).wait()
        first.wait()
        return None
    second, first = torch.zeros(1_000_000), torch.zeros(1_000_000)
    comm.recv(second, 0, tag=2)
    comm.recv(first, 0, tag=1)
    return torch.equal(first, long) and torch.equal(second, long + 1)


def test_a_message_that_was_set_aside():
    assert run(late_receive, 2, on=mpi(), checked=False)[1]


def another_place(comm):
    """A message is given another place while it is on its way."""
    line = type(comm._transport.streams[1 - comm.rank].socket)(
        comm._transport.world.Dup(), 1 - comm.rank
    )
    first, second = bytearray(5), bytearray(5)
    if comm.rank == 1:
        with pytest.raises(BlockingIOError):
            line.recv_into(memoryview(first))
    comm.barrier()
    if comm.rank == 0:
        return line.sendmsg([memoryview(b"hello")])
    wait_until(lambda: line.ready() & 1)
    return line.recv_into(memoryview(second)), bytes(second)


def test_a_message_that_finds_its_receive_while_it_comes():
    assert run(another_place, 2, on=mpi()) == [5, (5, b"hello")]
