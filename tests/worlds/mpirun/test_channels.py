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


def one_channel(comm):
    """A place is offered before the message is sent, and again once it can be there."""
    from mpi4py import MPI

    from course.worlds.mpirun.channels import MpiChannel

    channel, place = MpiChannel(MPI.COMM_WORLD.Dup(), 1 - comm.rank), bytearray(5)
    if comm.rank == 1:
        with pytest.raises(BlockingIOError):
            channel.recv_into(memoryview(place))
    comm.barrier()
    if comm.rank == 0:
        return channel.sendmsg([memoryview(b"hel"), memoryview(b"lo")])
    wait_until(lambda: channel.ready() & 1)
    return channel.recv_into(memoryview(place)), bytes(place)


def test_a_message_for_which_a_place_was_offered_before():
    assert run(one_channel, 2, on=mpi()) == [5, (5, b"hello")]


def messages_for_nobody(comm):
    """One in pieces, one too long to be sent before it is received, and one that was expected."""
    from mpi4py import MPI

    from course.worlds.mpirun.channels import MpiChannel, MpiPoller

    world = MPI.COMM_WORLD.Dup()
    channels = [MpiChannel(world, peer) for peer in range(comm.size) if peer != comm.rank]
    for channel in channels[: comm.rank]:
        with pytest.raises(BlockingIOError):
            channel.recv_into(memoryview(bytearray(5)))
    comm.barrier()
    for channel in channels:
        channel.sends = [channel._post(world.Isend, data) for data in (b"hello", bytes(3_000_000))]
    MpiPoller(channels).close()
    return world.Iprobe(), [channel.ended for channel in channels]


def test_what_came_for_nobody_is_taken_before_mpi_ends():
    assert run(messages_for_nobody, 3, on=mpi()) == [(False, [True, True])] * 3
