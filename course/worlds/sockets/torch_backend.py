"""The backend's own collectives (gloo, NCCL), behind the same checks as ours.

gloo silently corrupts tensors that are not in one piece, ignores a dtype or operation that differs
between ranks and aborts the process at a shape that does.  So tensors go in contiguous, and in
checked mode the ranks compare their calls first.
"""

import contextlib
import datetime
import os
import socket
import tempfile
from typing import Any

import torch
import torch.distributed as dist

from course.comm.errors import CommTimeout, PeerLost
from course.comm.tensors import required, writable

OPERATIONS = {
    "sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
}  # fmt: skip
TRANSLATIONS = {
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
            self.group.allreduce(self._real(flat, op), operation).wait()

    def broadcast(self, x, root=0):
        """Copy `x` [any shape] from `root` to all ranks, in place."""
        self._required_root(root)
        with self._call("broadcast", [x], root=root) as (flat,):
            self.group.broadcast(self._real(flat), root).wait()

    def all_gather(self, outs, x):
        """Gather `x` [the same shape everywhere] of every rank into `outs`, a tensor a rank."""
        with self._call("all_gather", outs, [x]) as (*flats, mine):
            self.group.allgather([self._real(x) for x in flats], self._real(mine)).wait()

    def reduce_scatter(self, out, parts, op="sum"):
        """Reduce `parts` [one a rank, the same shape] over all ranks; part r to `out` on rank r."""
        operation = self._operation(op, out)
        with self._call("reduce_scatter", [out], parts, op=op) as (mine, *flats):
            reals = [self._real(x, op) for x in flats]
            self.group.reduce_scatter(self._real(mine, op), reals, operation).wait()

    def barrier(self):
        """Return once every rank has called it."""
        with self._call("barrier", []):
            self.group.barrier().wait()

    @contextlib.contextmanager
    def _call(self, name, outs, ins=(), **details):
        """All these tensors in one piece each; what comes into those of `outs` gets there, sums
        that are to be means divided."""
        for out in outs:
            writable(out, self._comm.rank)
        tensors = [*outs, *(required(x, "what is sent", self._comm.rank) for x in ins)]
        with self._comm.collective(f"native.{name}", *tensors, **details):
            pieces = [x.detach().resolve_conj().resolve_neg().contiguous() for x in tensors]
            try:
                yield pieces
            except RuntimeError as error:
                raise self._translated(error, name, tensors) from error
            for out, piece in zip(outs, pieces):
                if details.get("op") == "mean":
                    piece /= self._comm.size
                if out.data_ptr() != piece.data_ptr():
                    out.detach().copy_(piece)

    def _translated(self, error, name, tensors) -> Exception:
        rank = self._comm.rank
        if "nvalid scalar type" in str(error):
            dtypes = ", ".join(sorted({str(x.dtype) for x in tensors}))
            return ValueError(f"rank {rank}: the backend has no {name} for {dtypes}")
        for words, (kind, what) in TRANSLATIONS.items():
            if words in str(error):
                return kind(f"rank {rank} {what} in {self._comm.call}")
        return error

    def _real(self, x, op="sum"):
        """Complex numbers as pairs of real ones, which is all that the backend knows."""
        if x.is_complex() and op not in ("sum", "mean"):
            raise ValueError(f"rank {self._comm.rank}: the backend has no {op} of {x.dtype}")
        return torch.view_as_real(x) if x.is_complex() else x

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


def native(comm, *, interface: str, address, timeout_s, world_size: int) -> Native:
    """torch.distributed's collectives on the ranks of `comm`: gloo between CPUs, on the network
    `interface`, NCCL between GPUs.  It starts the first time that a program asks for it.

    Ranks find one another at `address`, rank 0's own; at a file where they are all of one machine.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    with meeting_port(comm, address) if address else meeting_file(comm) as store:
        of_all = comm.size == world_size
        group = process_group(comm, store, timeout_s, of_all and not dist.is_initialized())
        comm.gather_texts("")  # all have found all
    return Native(comm, group)


@contextlib.contextmanager
def meeting_file(comm):
    """A store in a folder that is this user's alone, and gone at once."""
    with contextlib.ExitStack() as stack:
        folder = ""
        if comm.rank == 0:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="course-"))
        yield dist.FileStore(os.path.join(comm.gather_texts(folder)[0], "store"), comm.size)


@contextlib.contextmanager
def meeting_port(comm, address: str):
    """A store behind a port of rank 0, on its `address` alone."""
    port = 0
    master: dict[str, Any] = {}
    if comm.rank == 0:
        server = socket.create_server((address, 0), backlog=comm.size)
        port = server.getsockname()[1]
        master = {"is_master": True, "master_listen_fd": server.detach()}
    host, port = comm.gather_texts(f"{address} {port}")[0].split()
    yield dist.TCPStore(host, int(port), wait_for_workers=False, **master)


def process_group(comm, store, timeout_s, default: bool):
    """A process group of the ranks of `comm`, who meet at `store`; torch's `default` one, if so."""
    where = {"rank": comm.rank, "timeout": datetime.timedelta(seconds=timeout_s or 10**6)}
    on_gpus = comm.device.type == "cuda"
    group: Any
    if default:
        kinds = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
        dist.init_process_group(kinds, store=store, world_size=comm.size, **where)
        group = dist.group.WORLD
    else:
        kind = dist.ProcessGroupNCCL if on_gpus else dist.ProcessGroupGloo
        group = kind(store, size=comm.size, **where)
    group.barrier().wait()
    return group
