"""The ring: the tensor is cut in p chunks; partial sums of them go once round, and the finished
chunks once more.

2(p - 1) steps, in each of which every link carries 1/p of the tensor.
"""

from collections import deque
from typing import NamedTuple

SEGMENT_BYTES = 2 << 20  # passed on while the next one is still arriving
BETWEEN_NODES_BYTES = 256 << 10  # there at least: shorter ones cost more than they hide


class Step(NamedTuple):
    """One step of one rank on the ring: the chunks it sends right and receives from the left, and
    whether what it receives is added to its own or replaces it."""

    send: int
    receive: int
    add: bool


def ring_steps(p: int, rank: int) -> list[Step]:
    """What `rank` does on a ring of p ranks: p - 1 steps that add, p - 1 that pass on.

    After those that add, it holds chunk rank + 1 in its final form.
    Source: Patarasuk & Yuan 2009; chunks numbered as in Baidu's ring.
    """
    adding = [Step((rank - i) % p, (rank - i - 1) % p, True) for i in range(p - 1)]
    passing = [Step((rank + 1 - i) % p, (rank - i) % p, False) for i in range(p - 1)]
    return adding + passing


def reduce_scatter_steps(p: int, rank: int) -> list[Step]:
    """The steps of the ring that add, numbered so that `rank` ends with its own part."""
    return ring_steps(p, rank - 1)[: p - 1]


def all_gather_steps(p: int, rank: int) -> list[Step]:
    """The steps of the ring that pass on, numbered so that `rank` begins with its own part."""
    return ring_steps(p, rank - 1)[p - 1 :]


def by_ring(comm, flat, reduction, segment=None):
    """Ring all-reduce of `flat` [n] in segments of `segment` elements (None: `segment_length`)."""
    reduction.before(flat, comm.size)
    ring_all_reduce(comm, range(comm.size), flat, reduction, segment)


def ring_all_reduce(comm, ring, flat, reduction, segment):
    """Reduce `flat` [n] over the ranks of `ring`; `reduction.after` gets what is final."""
    if len(ring) == 1:
        return reduction.after(flat, comm.size)
    steps = ring_steps(len(ring), ring.index(comm.rank))
    chunks = flat.split(chunk_lengths(len(flat), len(ring)))
    run_ring(comm, ring, steps, chunks, reduction, segment)


def run_ring(comm, ring, steps, chunks, reduction, segment):
    """Do these steps, with a chunk of any length for each rank of the ring; a segment goes on to
    the right while the next one is still arriving from the left."""
    me = ring.index(comm.rank)
    right, left = ring[(me + 1) % len(ring)], ring[me - 1]
    longest = max(chunk.numel() for chunk in chunks)
    nodes, element_bytes = {comm.nodes[rank] for rank in ring}, chunks[0].element_size()
    segment = segment or segment_length(longest, element_bytes, nodes)
    scratch = chunks[0].new_empty(room := min(segment, longest))
    last_to_add = sum(step.add for step in steps) - 1
    first = steps[0].send
    sent = deque(comm.isend(piece, right, first) for piece in segments(chunks[first], segment))
    ahead = 2 * len(sent)  # what was sent two steps ago has long been received
    for number, step in enumerate(steps):
        for piece in segments(chunks[step.receive], segment):
            landing = piece
            if step.add:
                landing = scratch if piece.numel() == room else scratch[: piece.numel()]
            comm.recv(landing, left, step.receive)
            if step.add:
                reduction.combine(piece, landing)
            if number == last_to_add:
                reduction.after(piece, comm.size)
            if number < len(steps) - 1:
                sent.append(comm.isend(piece, right, step.receive))
                if len(sent) > ahead:
                    sent.popleft().wait()
    for handle in sent:
        handle.wait()


def chunk_lengths(elements: int, p: int) -> list[int]:
    """Of a tensor cut in p chunks, as by `tensor_split`: the first are one element longer."""
    return [elements // p + (c < elements % p) for c in range(p)]


def chunk_start(elements: int, p: int, chunk: int) -> int:
    """How many elements the chunks before number `chunk` have."""
    return chunk * (elements // p) + min(chunk, elements % p)


def segment_length(longest, element_bytes, nodes) -> int:
    """How many elements of `element_bytes` a segment of a chunk of `longest` elements has: 2 MB of
    them; on a ring of several nodes up to four segments make a chunk, of 256 KB to 2 MB."""
    parts = min(4, longest * element_bytes // BETWEEN_NODES_BYTES) if len(nodes) > 1 else 1
    return min(SEGMENT_BYTES // element_bytes, -(-longest // max(1, parts)))


def segments(chunk, length: int):
    """A chunk cut into segments of `length` elements; as it is if it is no longer than one."""
    return [chunk] if chunk.numel() <= length else chunk.split(length)
