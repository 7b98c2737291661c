"""All-reduce: everybody gets the sum (mean, ...) of everybody's tensor.

`ring` cuts the tensor in p chunks.  Chunk by chunk, partial sums go once round the ring, and the
finished chunks once more: 2(p - 1) steps, in each of which every link carries 1/p of the tensor.
`flat` sends everything to rank 0 and back.
"""

from typing import NamedTuple

import torch

from course.collectives.reduction import called, in_one_piece, reduction
from course.comm.tensors import required

SEGMENT_BYTES = 2 << 20  # passed on while the next one is still arriving


class Step(NamedTuple):
    """One step of one rank on the ring: the chunks it sends right and receives from the left, and
    whether what it receives is added to its own or replaces it."""

    send: int
    receive: int
    add: bool


def ring_steps(p: int, rank: int) -> list[Step]:
    """What `rank` does on a ring of p ranks: p - 1 steps that add, p - 1 that pass on.

    Source: Patarasuk & Yuan 2009; chunks numbered as in Baidu's ring.
    """
    adding = [Step((rank - i) % p, (rank - i - 1) % p, True) for i in range(p - 1)]
    passing = [Step((rank + 1 - i) % p, (rank - i) % p, False) for i in range(p - 1)]
    return adding + passing


def all_reduce(comm, x, op="sum", *, algorithm="ring", segment_bytes=SEGMENT_BYTES):
    """Combine `x` [any shape] of all ranks on all ranks, in place, bitwise the same everywhere.

    op: sum, mean, prod, min, max, or an associative and commutative function of two tensors.
    Cost: ring 2(p-1) steps and 2n(p-1)/p bytes a rank (in segments, each metered as a message);
    flat 2(p-1) steps, n bytes a rank but (p-1)n from rank 0; native: the backend's.
    Raises ValueError for an unknown op or algorithm, CommMismatch if the ranks' calls differ.
    """
    if algorithm == "native":
        return comm.native.all_reduce(x, op)
    if algorithm not in ALGORITHMS:
        names = ", ".join([*ALGORITHMS, "native"])
        raise ValueError(f"rank {comm.rank}: algorithm must be one of {names}, not {algorithm!r}")
    how = reduction(op, required(x, "what is reduced", comm.rank).dtype)
    this_call = comm.collective("all_reduce", x, op=called(op), by=algorithm)
    with this_call, in_one_piece(x, comm.rank) as flat:
        ALGORITHMS[algorithm](comm, flat, how, max(1, segment_bytes // x.element_size()))


def by_ring(comm, flat, how, segment: int):
    """Ring all-reduce of `flat` [n] in segments of `segment` elements."""
    steps, chunks = ring_steps(comm.size, comm.rank), flat.tensor_split(comm.size)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    how.before(flat, comm.size)
    if comm.size == 1:
        return how.after(flat, 1)
    scratch, mine = flat.new_empty(min(segment, chunks[0].numel())), chunks[comm.rank]
    sent = [comm.isend(piece, right, comm.rank) for piece in mine.split(segment)]
    for number, step in enumerate(steps):
        for piece in chunks[step.receive].split(segment):
            landing = scratch[: piece.numel()] if step.add else piece
            comm.recv(landing, left, step.receive)
            if step.add:
                how.combine(piece, landing)
            if number == comm.size - 2:
                how.after(piece, comm.size)
            if number < len(steps) - 1:
                sent.append(comm.isend(piece, right, step.receive))
    for handle in sent:
        handle.wait()


def by_rank_0(comm, flat, how, segment: int):
    """All-reduce by way of rank 0, which hears and answers one rank after another."""
    how.before(flat, comm.size)
    if comm.rank > 0:
        comm.send(flat, 0)
        return comm.recv(flat, 0)
    theirs = torch.empty_like(flat)
    for src in range(1, comm.size):
        comm.recv(theirs, src)
        how.combine(flat, theirs)
    how.after(flat, comm.size)
    for dst in range(1, comm.size):
        comm.send(flat, dst)


ALGORITHMS = {"ring": by_ring, "flat": by_rank_0}
