"""Ranks that are processes: tensors as bytes over sockets, from the CPU or staged through it."""

import socket
import time

import torch

from course.comm.communicator import Communicator
from course.comm.tensors import as_bytes, host, lands_directly
from course.comm.trace import Meter
from course.worlds.sockets.progress import Wire
from course.worlds.sockets.shm_ring import lanes, lanes_bytes
from course.worlds.sockets.shm_window import FUTEX, windows
from course.worlds.sockets.torch_backend import Backend


class ProcessWire(Wire):
    """A wire that carries tensors of this rank's `device`, and meters and traces them."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, rank, sockets, *, lanes, device, timeout, checked):
        super().__init__(rank, sockets, lanes=lanes, timeout=timeout, checked=checked)
        self.device, self.meter, self.trace = torch.device(device), Meter(), []
        self.windows = None, None  # the memory of its node, if there is such a thing
        self.backend = Backend(self)

    def node_memory(self):
        """The memory of its node for this rank's own calls, if there is such a thing."""
        return self.windows[0]

    def native(self, comm):
        """The backend's own collectives on the ranks of `comm`."""
        return self.backend.native(comm)

    def send_tensor(self, peer, envelope, x, synchronous):
        """Post the elements of `x`, whatever its strides and device."""
        self._required_data(x)
        return self.send(peer, envelope, as_bytes(host(x)), synchronous=synchronous)

    def receive_tensor(self, peers, envelope, out):
        """Post a place for the elements of `out`: its own memory where that is in one piece."""
        self._required_data(out)
        direct = lands_directly(out)
        landing = out.detach() if direct else torch.empty(out.shape, dtype=out.dtype)
        request = self.receive(peers, envelope, as_bytes(landing.reshape(-1)))
        request.unload = None if direct else lambda: out.detach().copy_(landing)
        return request

    def _required_data(self, x):
        if x.is_meta:
            raise ValueError(f"rank {self.rank}: a tensor on the meta device has no memory")


def own_device(rank, nodes, wanted=None) -> torch.device:
    """The device of a rank: a GPU of its own where its node has one for each, else the CPU; with
    `wanted="cuda"` the ranks of a node share what GPUs there are."""
    local = sum(node == nodes[rank] for node in nodes[:rank])
    count = torch.cuda.device_count()
    enough = count >= max(nodes.count(node) for node in nodes)
    if wanted == "cuda" and not count:
        raise ValueError(f'rank {rank}: device="cuda" was asked for, but there is no GPU')
    if (wanted is None and enough and count) or wanted == "cuda":
        return torch.device("cuda", local % count)
    return torch.device(wanted or "cpu")


def connect(rank, fds, *, nodes, device, timeout, checked) -> Communicator:
    """The world's communicator for `rank`; `fds`: its sockets to the other ranks, then, where there
    is such a thing, the memory that ranks of one node share."""
    others = [other for other in range(len(nodes)) if other != rank]
    sockets = {other: socket.socket(fileno=fd) for other, fd in zip(others, fds)}
    memory = fds[-1] if len(fds) > len(others) else None
    device = own_device(rank, nodes, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    near = [peer for peer in sockets if nodes[peer] == nodes[rank]]
    shared = {} if memory is None else lanes(memory, rank, near, len(nodes))
    wire = ProcessWire(rank, sockets, lanes=shared, device=device, timeout=timeout, checked=checked)
    if memory is not None and FUTEX:
        wire.windows = windows(wire, memory, near, len(nodes), lanes_bytes(len(nodes)))
    return Communicator(wire, range(len(nodes)), nodes)
