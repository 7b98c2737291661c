"""Ranks that are processes: the world's communicator over their sockets."""

import functools
import mmap
import socket

import torch

from course.comm.communicator import Communicator
from course.worlds.sockets.polling import SocketPoller
from course.worlds.sockets.shm_ring import rings, rings_bytes
from course.worlds.sockets.shm_window import FUTEX, windows
from course.worlds.sockets.stream import Stream
from course.worlds.sockets.torch_backend import native
from course.worlds.sockets.transport import SocketTransport


def own_device(rank, nodes, wanted=None) -> torch.device:
    """The device of a rank: a GPU of its own where its node has one for each, else the CPU; with
    `wanted="cuda"` the ranks of a node share what GPUs there are."""
    local = sum(node == nodes[rank] for node in nodes[:rank])
    count = torch.cuda.device_count()
    enough = count >= max(nodes.count(node) for node in nodes)
    if wanted == "cuda" and not count:
        raise ValueError(f'rank {rank}: device="cuda" was asked for, but there is no GPU')
    if (wanted is None and enough and count) or wanted == "cuda":
        device = torch.device("cuda", local % count)
        torch.cuda.set_device(device)
        return device
    return torch.device(wanted or "cpu")


def connect(rank, fds, *, nodes, interface="lo", address=None, **settings) -> Communicator:
    """The world's communicator for `rank`; `fds`: its sockets to the other ranks, then, where there
    is such a thing, the memory that ranks of one node share.  `interface`: of the network that the
    backend's own collectives may use, `address`: this rank's there, if there are several machines.
    """
    others = [other for other in range(len(nodes)) if other != rank]
    memory = mmap.mmap(fds[-1], 0) if len(fds) > len(others) else None
    near = [peer for peer in others if nodes[peer] == nodes[rank]]
    shared = rings(memory, rank, near, len(nodes)) if memory else {}
    streams = {peer: Stream(peer, socket.socket(fileno=fd), shared.get(peer))
               for peer, fd in zip(others, fds)}  # fmt: skip
    settings["device"] = own_device(rank, nodes, settings["device"])
    transport = SocketTransport(rank, streams, SocketPoller(), **settings)
    found = {"interface": interface, "address": address, "timeout_s": settings["timeout"]}
    transport.native = functools.partial(native, world_size=len(nodes), **found)
    if memory and FUTEX:
        transport.windows = windows(transport, memory, near, len(nodes), rings_bytes(len(nodes)))
    return Communicator(transport, range(len(nodes)), nodes)
