"""All-reduce by way of the nodes: inside each, then across them, then inside again.

Across, each chunk is reduced by one rank of every node, so that what leaves a node is the tensor
once, however many ranks the node has.  Inside, the ranks of a node use the memory that they share;
where they share none, they send messages round a ring.
"""

import contextlib
from itertools import groupby, zip_longest

from course.collectives.ring import around, pass_on, ring_steps


def rings(nodes) -> list[list[int]]:
    """The ranks of each node, by node."""
    return [[rank for rank, at in enumerate(nodes) if at == node] for node in dict.fromkeys(nodes)]


def owner(ring: list[int], chunk: int) -> int:
    """The rank of a node that holds `chunk` in its final form after the steps that add."""
    return ring[(chunk - 1) % len(ring)]


def by_nodes(comm, flat, how, segment):
    """Hierarchical all-reduce of `flat` [n]: as many chunks as the smallest node has ranks."""
    how.before(flat, comm.size)
    everywhere = rings(comm.nodes)
    chunks = flat.tensor_split(min(map(len, everywhere)))
    inside = next(ring for ring in everywhere if comm.rank in ring)
    with comm.node_memory() or contextlib.nullcontext() as memory:
        if memory and flat.device.type == "cpu":
            way = Memory(comm, inside, chunks, memory)
        else:
            way = Messages(comm, inside, chunks, segment)
        way.add(how._replace(after=lambda part, p: part))
        for number, chunk in enumerate(chunks):
            across = [owner(ring, number) for ring in everywhere]
            if comm.rank in across:
                around(comm, across, chunk, how, segment)
        way.spread()


class Messages:
    """The ring of a node; ranks that have no chunk of their own pass on those of the others."""

    def __init__(self, comm, ring, chunks, segment):
        self.parts = [*chunks, *[chunks[0][:0]] * (len(ring) - len(chunks))]
        self.comm, self.ring, self.segment = comm, ring, segment
        steps = ring_steps(len(ring), ring.index(comm.rank))
        self.steps = {add: list(some) for add, some in groupby(steps, lambda step: step.add)}

    def add(self, how):
        """Combine each chunk of all ranks of the node in its owner's."""
        if self.steps:
            pass_on(self.comm, self.ring, self.steps[True], self.parts, how, self.segment)

    def spread(self):
        """Let all ranks of the node have each chunk of its owner."""
        if self.steps:
            pass_on(self.comm, self.ring, self.steps[False], self.parts, None, self.segment)


class Memory:
    """The grounds of a node's ranks, each in two halves: while one is read, the other is written.

    Between two meetings a piece of every chunk is moved, so small that it stays in the cache.
    """

    def __init__(self, comm, ring, chunks, memory):
        self.rank, self.ring, self.barrier, self.rounds = comm.rank, ring, memory.barrier, 0
        self.owners = [owner(ring, number) for number in range(len(chunks))]
        dtype, buffers = chunks[0].dtype, memory.buffers
        self.halves = {rank: buffers[rank].view(2, -1).view(dtype) for rank in ring}
        self.length = self.halves[comm.rank].shape[1] // len(chunks)
        cut = [chunk.split(self.length) for chunk in chunks] if len(ring) > 1 else []
        self.pieces = [list(enumerate(row)) for row in zip_longest(*cut, fillvalue=chunks[0][:0])]

    def add(self, how):
        """Combine each chunk of all ranks of the node in its owner's."""
        others = [rank for rank in self.ring if rank != self.rank]
        for row in self.pieces:
            for number, piece in row:
                if self.owners[number] != self.rank:
                    self._place(self.rank, piece, number).copy_(piece)
            self.barrier()
            for number, piece in row:
                for rank in others if self.owners[number] == self.rank else ():
                    how.combine(piece, self._place(rank, piece, number))
            self.rounds += 1

    def spread(self):
        """Let all ranks of the node have each chunk of its owner."""
        for row in self.pieces:
            for number, piece in row:
                if self.owners[number] == self.rank:
                    self._place(self.rank, piece, number).copy_(piece)
            self.barrier()
            for number, piece in row:
                if self.owners[number] != self.rank:
                    piece.copy_(self._place(self.owners[number], piece, number))
            self.rounds += 1
        if self.pieces:
            self.barrier()  # nobody reads any more

    def _place(self, rank, piece, number):
        """Where on its ground a rank has its piece of chunk `number` in this round."""
        start = number * self.length
        return self.halves[rank][self.rounds % 2, start : start + len(piece)]
