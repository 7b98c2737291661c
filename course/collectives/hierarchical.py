"""All-reduce by way of the nodes: inside each, then across them, then inside again.

Across, each chunk is reduced by one rank of every node, so that what leaves a node is the tensor
once, however many ranks the node has.  Inside, the ranks of a node use the memory that they share;
where they share none, they send messages round a ring.
"""

import contextlib
from itertools import groupby, zip_longest

import torch

from course.collectives.ring import ring_all_reduce, ring_steps, run_ring
from course.comm.errors import CommMismatch, differing
from course.comm.tensors import CODES, DTYPES, describe

HEADER_BYTES = 64  # dtype and length of what a rank reduces, in a cache line of their own


def ranks_by_node(nodes) -> list[list[int]]:
    """The ranks of each node, by node."""
    return [[rank for rank, at in enumerate(nodes) if at == node] for node in dict.fromkeys(nodes)]


def owner(ring: list[int], chunk: int) -> int:
    """The rank of a node that holds `chunk` in its final form after the steps that add."""
    return ring[(chunk - 1) % len(ring)]


def by_nodes(comm, flat, reduction, segment=None):
    """Hierarchical all-reduce of `flat` [n]: as many chunks as the smallest node has ranks."""
    reduction.before(flat, comm.size)
    rings = ranks_by_node(comm.nodes)
    chunks = flat.tensor_split(min(map(len, rings)))
    ring = next(ring for ring in rings if comm.rank in ring)
    with comm.node_memory() or contextlib.nullcontext() as memory:
        if memory and flat.device.type == "cpu":
            node: SharedMemory | RingOfNode = SharedMemory(comm, ring, chunks, memory)
        else:
            node = RingOfNode(comm, ring, chunks, segment)
        mismatch = node.reduce_scatter(reduction._replace(after=lambda part, p: part))
        if not mismatch:
            for number, chunk in enumerate(chunks):
                across = [owner(ring, number) for ring in rings]
                if comm.rank in across:
                    ring_all_reduce(comm, across, chunk, reduction, segment)
            node.all_gather()
    if mismatch:  # raised here, where all ranks of the node have left the memory in order
        raise CommMismatch(mismatch)


class RingOfNode:
    """The ring of a node; ranks that have no chunk of their own pass on those of the others."""

    def __init__(self, comm, ring, chunks, segment):
        self.parts = [*chunks, *[chunks[0][:0]] * (len(ring) - len(chunks))]
        self.comm, self.ring, self.segment = comm, ring, segment
        steps = ring_steps(len(ring), ring.index(comm.rank))
        self.steps = {add: list(some) for add, some in groupby(steps, lambda step: step.add)}

    def reduce_scatter(self, reduction):
        """Combine each chunk of all ranks of the node in its owner's."""
        if self.steps:
            run_ring(self.comm, self.ring, self.steps[True], self.parts, reduction, self.segment)

    def all_gather(self):
        """Let all ranks of the node have each chunk of its owner."""
        if self.steps:
            run_ring(self.comm, self.ring, self.steps[False], self.parts, None, self.segment)


class SharedMemory:
    """The buffers of a node's ranks, each in two halves: while one is read, the other is written.

    Between two barriers a piece of every chunk is moved, so small that it stays in the cache.  A
    header at the end of each buffer says what its rank reduces: no message does.
    """

    def __init__(self, comm, ring, chunks, memory):
        self.comm, self.ring, self.barrier, self.rounds = comm, ring, memory.barrier, 0
        self.owners = [owner(ring, number) for number in range(len(chunks))]
        dtype, buffers = chunks[0].dtype, memory.buffers
        halves = {rank: buffers[rank][:-HEADER_BYTES].view(2, -1) for rank in ring}
        self.halves = {rank: half.view(dtype) for rank, half in halves.items()}
        self.headers = {rank: buffers[rank][-HEADER_BYTES:].view(torch.int64)[:2] for rank in ring}
        self.header = torch.tensor([CODES[dtype], sum(map(len, chunks))])
        self.length = self.halves[comm.rank].shape[1] // len(chunks)
        cut = [chunk.split(self.length) for chunk in chunks] if len(ring) > 1 else []
        self.pieces = [list(enumerate(row)) for row in zip_longest(*cut, fillvalue=chunks[0][:0])]

    def reduce_scatter(self, reduction):
        """Combine each chunk of all ranks of the node in its owner's; returns what differs, if
        anything does, and has then done nothing."""
        me, others = self.comm.rank, [rank for rank in self.ring if rank != self.comm.rank]
        self.headers[me].copy_(self.header)
        for row in self.pieces:
            for number, piece in row:
                if self.owners[number] != me:
                    self._place(me, piece, number).copy_(piece)
            self.barrier()
            if not self.rounds and (mismatch := self._mismatch()):
                self.barrier()  # nobody reads any more
                return mismatch
            for number, piece in row:
                for rank in others if self.owners[number] == me else ():
                    reduction.combine(piece, self._place(rank, piece, number))
            self.rounds += 1

    def all_gather(self):
        """Let all ranks of the node have each chunk of its owner."""
        me = self.comm.rank
        for row in self.pieces:
            for number, piece in row:
                if self.owners[number] == me:
                    self._place(me, piece, number).copy_(piece)
            self.barrier()
            for number, piece in row:
                if self.owners[number] != me:
                    piece.copy_(self._place(self.owners[number], piece, number))
            self.rounds += 1
        if self.pieces:
            self.barrier()  # nobody reads any more

    def _place(self, rank, piece, number):
        """Where in its buffer a rank has its piece of chunk `number` in this round."""
        start = number * self.length
        return self.halves[rank][self.rounds % 2, start : start + len(piece)]

    def _mismatch(self) -> str:
        """Which ranks of the node reduce another dtype or length than the others."""
        if all(torch.equal(header, self.header) for header in self.headers.values()):
            return ""
        call, said = self.comm.call.partition(" (")[0], {}
        for rank, header in self.headers.items():
            code, elements = header.tolist()
            said[self.comm.members[rank]] = f"{call} ({describe(DTYPES[code], [elements])})"
        return differing(said)
