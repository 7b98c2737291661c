"""From sockets and memory to the world's communicator, and which device a rank is given."""

import os
import socket
import threading

import pytest
import torch

from course.worlds.sockets.connect import connect, own_device
from course.worlds.sockets.shm_ring import reserve
from course.worlds.sockets.shm_window import FUTEX

SETTINGS = {"device": "cpu", "timeout": 5.0, "checked": True}


def machine_with(monkeypatch, gpus):
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


NODES = (0, 0, 1, 0, 1)


@pytest.mark.parametrize("gpus, devices", [
    (0, ["cpu"] * 5),
    (2, ["cpu"] * 5),  # node 0 has three ranks: no GPU of its own for each, so none for any
    (3, ["cuda:0", "cuda:1", "cuda:0", "cuda:2", "cuda:1"]),
])  # fmt: skip
def test_a_rank_has_a_gpu_where_each_of_its_node_can_have_one(monkeypatch, gpus, devices):
    chosen = machine_with(monkeypatch, gpus)
    assert [str(own_device(rank, NODES)) for rank in range(5)] == devices
    assert [str(device) for device in chosen] == [d for d in devices if d != "cpu"]


def test_asked_for_gpus_ranks_share_what_there_are(monkeypatch):
    chosen = machine_with(monkeypatch, 2)
    found = [str(own_device(rank, NODES, "cuda")) for rank in range(5)]
    assert found == ["cuda:0", "cuda:1", "cuda:0", "cuda:0", "cuda:1"]
    assert [str(device) for device in chosen] == found


def test_a_gpu_that_is_not_there_is_told(monkeypatch):
    machine_with(monkeypatch, 0)
    sentence = '^rank 3: device="cuda" was asked for, but there is no GPU$'
    with pytest.raises(ValueError, match=sentence):
        own_device(3, NODES, "cuda")


def test_asked_for_the_cpu_a_rank_is_given_it(monkeypatch):
    assert not machine_with(monkeypatch, 8)
    assert own_device(3, NODES, "cpu") == torch.device("cpu")


@pytest.fixture
def connected():
    """Makes the communicators of ranks on these nodes, in one process."""
    comms, memories = [], []

    def make(nodes, memory=True):
        ranks = range(len(nodes))
        pairs = {(a, b): socket.socketpair() for a in ranks for b in ranks if a < b}
        if memory:
            memories.append(reserve(len(nodes)))
        for rank in ranks:
            fds = [pairs[min(rank, o), max(rank, o)][rank > o].detach() for o in ranks if o != rank]
            comms.append(connect(rank, fds + memories[-1:], nodes=nodes, **SETTINGS))
        return comms

    yield make
    for comm in comms:
        for stream in comm._transport.sender.streams.values():
            stream.socket.close()
        comm._transport.progress.poller.selector.close()
    for fd in memories:
        os.close(fd)


def each(comms, act):
    found = [None] * len(comms)

    def note(comm):
        found[comm.rank] = act(comm)

    threads = [threading.Thread(target=note, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def to_everyone(comm, elements):
    """Each sends its number to all: who said what."""
    places = {r: torch.zeros(elements) for r in range(comm.size) if r != comm.rank}
    handles = [comm.irecv(out, rank) for rank, out in places.items()]
    x = torch.full((elements,), float(comm.rank))
    handles += [comm.isend(x, rank) for rank in places]
    for handle in handles:
        handle.wait()
    return {rank: out.unique().tolist() for rank, out in places.items()}


@pytest.mark.parametrize("nodes", [(0, 0, 0), (0, 1, 2), (0, 7, 0)])
@pytest.mark.parametrize("elements", [1, 50_000])
def test_whichever_way_they_go_messages_go_where_they_belong(connected, nodes, elements):
    comms = connected(nodes)
    assert [(comm.rank, comm.size, comm.node) for comm in comms] == [
        (rank, 3, node) for rank, node in enumerate(nodes)
    ]
    expected = [{r: [float(r)] for r in range(3) if r != rank} for rank in range(3)]
    assert each(comms, lambda comm: to_everyone(comm, elements)) == expected


def test_ranks_of_a_node_have_rings_and_windows_with_one_another_alone(connected):
    comms = connected((0, 7, 0))
    with_rings = [
        [peer for peer, stream in comm._transport.sender.streams.items() if stream.rings]
        for comm in comms
    ]
    assert with_rings == [[2], [], [0]]
    if FUTEX:
        shared = [[sorted(w.buffers) for w in comm._transport.windows] for comm in comms]
        assert shared == [[[0, 2]] * 2, [[1]] * 2, [[0, 2]] * 2]


def test_what_is_written_for_the_node_is_read_there(connected):
    if not FUTEX:
        pytest.skip("no such memory on this machine")

    def tell(comm):
        with comm.node_memory() as memory:
            memory.buffers[comm.rank][:3] = comm.rank + 1
            memory.barrier()
            return [buffer[:3].tolist() for buffer in memory.buffers.values()]

    assert each(connected((0, 0)), tell)[0] == [[1] * 3, [2] * 3]


def test_without_memory_there_are_sockets(connected):
    comms = connected((0, 0), memory=False)
    assert all(stream.rings is None for stream in comms[0]._transport.sender.streams.values())
    assert [comm.node_memory() for comm in comms] == [None, None]
    assert each(comms, lambda comm: to_everyone(comm, 50_000)) == [{1: [1.0]}, {0: [0.0]}]


def test_settings_reach_the_transport(connected):
    comm = connected((0,))[0]
    transport = comm._transport
    assert (transport.checked, transport.progress.timeout, str(comm.device)) == (True, 5.0, "cpu")
    assert repr(comm) == "<rank 0 of 1 in world, node 0>"
