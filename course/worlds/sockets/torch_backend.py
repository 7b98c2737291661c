"""The backend's own collectives (gloo, NCCL), behind the same checks as ours.

gloo silently corrupts tensors that are not in one piece, ignores a dtype or operation that differs
between ranks and aborts the process at a shape that does.  So tensors go in contiguous, and in
checked mode the ranks compare their calls first.
"""

import contextlib
import datetime
import os
import socket

import torch.distributed as dist

from course.comm.errors import CommTimeout, PeerLost
from course.comm.tensors import required, writable

OPERATIONS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


MEANINGS = {
    "Timed out": (CommTimeout, "waited too long"),
    "Connection closed": (PeerLost, "lost its connection to another rank"),
    "Connection reset": (PeerLost, "lost its connection to another rank"),
}  # of the words in gloo's errors


class Native:
    """torch.distributed's collectives on one communicator's ranks; `group` is its process group."""

    def __init__(self, comm, group):
        self._comm, self.group = comm, group

    def all_reduce(self, x, op="sum"):
        """Reduce `x` [any shape] over all ranks, in place."""
        operation = self._operation(op, x)
        with self._call("all_reduce", [x], op=op) as (flat,):
            dist.all_reduce(flat, operation, group=self.group)
            if op == "mean":
                flat /= self._comm.size

    def broadcast(self, x, root=0):
        """Copy `x` [any shape] from `root` to all ranks, in place."""
        self._required_root(root)
        with self._call("broadcast", [x], root=root) as (flat,):
            dist.broadcast(flat, group_src=root, group=self.group)

    def all_gather(self, outs, x):
        """Gather `x` [the same shape everywhere] of every rank into `outs`, a tensor a rank."""
        with self._call("all_gather", outs, [x]) as (*flats, mine):
            dist.all_gather(flats, mine, group=self.group)

    def reduce_scatter(self, out, parts, op="sum"):
        """Reduce `parts` [one a rank, the same shape] over all ranks; part r to `out` on rank r."""
        operation = self._operation(op, out)
        with self._call("reduce_scatter", [out], parts, op=op) as (mine, *flats):
            dist.reduce_scatter(mine, flats, operation, group=self.group)
            if op == "mean":
                mine /= self._comm.size

    def barrier(self):
        """Return once every rank has called it."""
        with self._call("barrier", []):
            dist.barrier(group=self.group)

    @contextlib.contextmanager
    def _call(self, name, outs, ins=(), **details):
        """All these tensors in one piece each; what comes into those of `outs` gets there."""
        for out in outs:
            writable(out, self._comm.rank)
        tensors = [*outs, *(required(x, "what is sent", self._comm.rank) for x in ins)]
        with self._comm.collective(f"native.{name}", *tensors, **details):
            pieces = [x.detach().resolve_conj().resolve_neg().contiguous() for x in tensors]
            try:
                yield pieces
            except RuntimeError as error:
                raise self._in_our_words(error, name, tensors) from error
            for out, piece in zip(outs, pieces):
                if out.data_ptr() != piece.data_ptr():
                    out.detach().copy_(piece)

    def _in_our_words(self, error, name, tensors) -> Exception:
        rank = self._comm.rank
        if "nvalid scalar type" in str(error):
            dtypes = ", ".join(sorted({str(x.dtype) for x in tensors}))
            return ValueError(f"rank {rank}: the backend has no {name} for {dtypes}")
        for words, (kind, what) in MEANINGS.items():
            if words in str(error):
                return kind(f"rank {rank} {what} in {self._comm.call}")
        return error

    def _required_root(self, root):
        if root not in range(self._comm.size):
            ranks = f"{self._comm.size} ranks"
            raise ValueError(f"rank {self._comm.rank}: no root {root!r} among {ranks}")

    def _operation(self, op, x):
        rank = self._comm.rank
        if op not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise ValueError(f"rank {rank}: the backend reduces by {known}, not by {op!r}")
        if op == "mean" and not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"rank {rank}: {x.dtype} holds no means")
        return OPERATIONS[op]


class Backend:
    """torch.distributed, started the first time that a program asks for it, on the network that
    joins its ranks: loopback, unless their sockets have addresses."""

    def __init__(self, wire):
        self._wire, self._groups = wire, {}

    def native(self, comm) -> Native:
        """The backend's collectives on the ranks of `comm`."""
        if comm.name not in self._groups:
            self._groups[comm.name] = Native(comm, self._group(comm))
        return self._groups[comm.name]

    def _group(self, comm):
        if not dist.is_initialized():
            self._start(comm)
        if comm.name == "world":
            return dist.group.WORLD
        if list(comm.members) != sorted(comm.members):
            raise ValueError(f"native keeps the world's order, not {list(comm.members)}")
        return dist.new_group(comm.members, use_local_synchronization=True)

    def _start(self, comm):
        size = len(self._wire.streams)
        if comm.name != "world":
            raise ValueError("ask for `native` of the world first: all ranks start the backend")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        timeout = datetime.timedelta(seconds=self._wire.timeout or 10**6)
        listener = socket.create_server((self._address, 0)) if comm.rank == 0 else None
        place = "{} {}".format(*listener.getsockname()) if listener else ""
        address, port = comm.gather_texts(place)[0].split()
        served = {"master_listen_fd": listener.detach()} if listener else {}
        store = dist.TCPStore(address, int(port), size, comm.rank == 0, timeout,
                              wait_for_workers=False, **served)  # fmt: skip
        kinds = "cpu:gloo,cuda:nccl" if self._wire.device.type == "cuda" else "gloo"
        dist.init_process_group(
            kinds, store=store, rank=comm.rank, world_size=size, timeout=timeout
        )

    @property
    def _address(self) -> str:
        sockets = [stream.socket for stream in self._wire.remote]
        inet = (end.getsockname()[0] for end in sockets if end.family == socket.AF_INET)
        return next(inet, "127.0.0.1")

    @staticmethod
    def stop():
        if dist.is_initialized():
            dist.destroy_process_group()
