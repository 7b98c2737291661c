"""MPI's own collectives, behind the same checks as ours and gloo's."""

import os
import time

import torch
from mpi4py import MPI

from course.comm.errors import timed_out
from course.comm.tensors import as_bytes
from course.worlds.sockets.torch_backend import Native

OPERATIONS = {
    "sum": MPI.SUM, "mean": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX,
}  # fmt: skip
SPIN_S = 5e-5  # so long a rank asks without a pause,
LONGEST_PAUSE_S = 1e-3  # then it sleeps a quarter of the time waited so far, at most so long


def native(comm, *, world, timeout_s) -> Native:
    """MPI's own collectives on the ranks of `comm`, which are some of those of `world`, MPI's."""
    comm.gather_texts("")  # all are here
    return MpiNative(comm, world.Create_group(world.group.Incl(comm.members)), timeout_s)


class MpiNative(Native):
    """MPI's collectives on one communicator's ranks; `group` is its MPI communicator."""

    def __init__(self, comm, group, timeout):
        super().__init__(comm, group)
        self.timeout = timeout

    def all_reduce(self, x, op="sum"):
        """Reduce `x` [any shape] over all ranks, in place."""
        self._operation(op, x)
        with self._call("all_reduce", [x], op=op) as (mine,):
            host = mine.cpu()
            self._do(self.group.Iallreduce, MPI.IN_PLACE, self._numbers(host), OPERATIONS[op])
            mine.copy_(host)

    def broadcast(self, x, root=0):
        """Copy `x` [any shape] from `root` to all ranks, in place."""
        self._required_root(root)
        with self._call("broadcast", [x], root=root) as (mine,):
            host = mine.cpu()
            self._do(self.group.Ibcast, _bytes(host), root)
            mine.copy_(host)

    def all_gather(self, outs, x):
        """Gather `x` [the same shape everywhere] of every rank into `outs`, a tensor a rank."""
        with self._call("all_gather", outs, [x]) as (*places, mine):
            landing = torch.empty(len(places), mine.numel(), dtype=mine.dtype)
            self._do(self.group.Iallgather, _bytes(mine.cpu()), _bytes(landing))
            for place, part in zip(places, landing):
                place.copy_(part.reshape(place.shape))

    def reduce_scatter(self, out, parts, op="sum"):
        """Reduce `parts` [one a rank, the same shape] over all ranks; part r to `out` on rank r."""
        self._operation(op, out)
        with self._call("reduce_scatter", [out], parts, op=op) as (mine, *theirs):
            landing = torch.empty(mine.shape, dtype=mine.dtype)
            given = self._numbers(torch.stack(theirs).cpu())
            begin = self.group.Ireduce_scatter_block
            self._do(begin, given, self._numbers(landing), OPERATIONS[op])
            mine.copy_(landing)

    def barrier(self):
        """Return once every rank has called it."""
        with self._call("barrier", []):
            self._do(self.group.Ibarrier)

    def _do(self, begin, *buffers_and_rule):
        """Begin a collective and wait for it.  Raises CommTimeout, and ValueError for what MPI
        does not have."""
        rank, call = self._comm.rank, self._comm.call
        start = time.monotonic()
        try:
            request = begin(*buffers_and_rule)
        except MPI.Exception as error:
            reason = str(error).partition(",")[0]
            raise ValueError(f"rank {rank}: MPI cannot do {call}: {reason}") from None
        while not request.Test():
            waited = time.monotonic() - start
            if self.timeout is not None and waited > self.timeout:
                raise timed_out(rank, self.timeout, call)
            backoff(waited)

    def _numbers(self, x):
        """The memory of a tensor in one piece, as numbers of a type that MPI knows."""
        try:
            return x.numpy()
        except TypeError:
            rule = f"MPI has no numbers of {x.dtype}"
            raise ValueError(f"rank {self._comm.rank}: {rule}") from None


def _bytes(x) -> list:
    return [as_bytes(x.reshape(-1)), MPI.BYTE]


def backoff(waited: float):
    """Let others have the core; the longer the wait so far, the longer."""
    if waited < SPIN_S:
        os.sched_yield()
    else:
        time.sleep(min(waited / 4, LONGEST_PAUSE_S))
