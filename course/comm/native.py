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

OPERATIONS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


class Native:
    """torch.distributed's collectives on one communicator's ranks; `group` is its process group."""

    def __init__(self, comm, group):
        self._comm, self.group = comm, group

    def all_reduce(self, x, op="sum"):
        """Reduce `x` [any shape] over all ranks, in place."""
        with self._call("all_reduce", [x], op=op) as (flat,):
            dist.all_reduce(flat, _operation(op), group=self.group)
            if op == "mean":
                flat /= self._comm.size

    def broadcast(self, x, root=0):
        """Copy `x` [any shape] from `root` to all ranks, in place."""
        with self._call("broadcast", [x], root=root) as (flat,):
            dist.broadcast(flat, group_src=root, group=self.group)

    def all_gather(self, outs, x):
        """Gather `x` [the same shape everywhere] of every rank into `outs`, a tensor a rank."""
        with self._call("all_gather", [*outs, x]) as (*flats, mine):
            dist.all_gather(flats, mine, group=self.group)

    def reduce_scatter(self, out, parts, op="sum"):
        """Reduce `parts` [one a rank, the same shape] over all ranks; part r to `out` on rank r."""
        with self._call("reduce_scatter", [out, *parts], op=op) as (mine, *flats):
            dist.reduce_scatter(mine, flats, _operation(op), group=self.group)
            if op == "mean":
                mine /= self._comm.size

    def barrier(self):
        """Return once every rank has called it."""
        with self._call("barrier", []):
            dist.barrier(group=self.group)

    @contextlib.contextmanager
    def _call(self, name, tensors, **details):
        with self._comm.collective(f"native.{name}", *tensors, **details):
            pieces = [x.detach().contiguous() for x in tensors]
            try:
                yield pieces
            except RuntimeError as error:
                if "nvalid scalar type" not in str(error):
                    raise
                dtypes = ", ".join(sorted({str(x.dtype) for x in tensors}))
                raise ValueError(
                    f"rank {self._comm.rank}: the backend has no {name} for {dtypes}"
                ) from None
            for x, piece in zip(tensors, pieces):
                if x.data_ptr() != piece.data_ptr():
                    x.detach().copy_(piece)


def _operation(op):
    if op not in OPERATIONS:
        raise ValueError(f"the backend reduces by {', '.join(OPERATIONS)}, not by {op!r}")
    return OPERATIONS[op]


class Backend:
    """torch.distributed, started the first time that a program asks for it, on loopback only."""

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
        listener = socket.create_server(("127.0.0.1", 0)) if comm.rank == 0 else None
        port = int(comm._tell(str(listener.getsockname()[1]) if listener else "")[0])
        served = {"master_listen_fd": listener.detach()} if listener else {}
        store = dist.TCPStore("127.0.0.1", port, size, comm.rank == 0, timeout,
                              wait_for_workers=False, **served)  # fmt: skip
        kinds = "cpu:gloo,cuda:nccl" if self._wire.device.type == "cuda" else "gloo"
        dist.init_process_group(
            kinds, store=store, rank=comm.rank, world_size=size, timeout=timeout
        )

    @staticmethod
    def stop():
        if dist.is_initialized():
            dist.destroy_process_group()
