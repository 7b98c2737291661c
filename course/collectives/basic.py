"""Collectives built from send and recv alone, named and shaped as in torch.distributed.

A plan says who sends to whom in which round; the same plan is drawn, checked and run.  Parts may
have different sizes on different ranks, and may be empty.
"""

import torch

from course.collectives.reduction import called, in_one_piece, reduction
from course.comm.tensors import describe, required, writable


def binomial_tree(p: int, root: int = 0) -> list[list[tuple[int, int]]]:
    """Rounds of (from, to): in each, every rank that has the data passes it on to one that has not.

    p = 8, root 0:   0→1 | 0→2 1→3 | 0→4 1→5 2→6 3→7
    """
    rounds, have = [], 1
    while have < p:
        pairs = [(i, i + have) for i in range(min(have, p - have))]
        rounds.append([((a + root) % p, (b + root) % p) for a, b in pairs])
        have *= 2
    return rounds


def broadcast(comm, x, root: int = 0):
    """Copy `x` [any shape] of rank `root` to all ranks, in place, down a binomial tree.

    Cost: ceil(lg p) steps of n bytes; p - 1 messages in all.
    """
    _existing(comm, root)
    required(x, "what is broadcast", comm.rank)
    with comm.collective("broadcast", x, root=root):
        for number, pairs in enumerate(binomial_tree(comm.size, root)):
            for src, dst in pairs:
                if comm.rank == src:
                    comm.send(x, dst, number)
                elif comm.rank == dst:
                    comm.recv(x, src, number)


def reduce(comm, x, op="sum", root: int = 0):
    """Combine `x` [any shape] of all ranks into rank `root`'s, up a binomial tree; the others keep
    theirs.

    Cost: ceil(lg p) steps of n bytes; p - 1 messages in all.
    """
    _existing(comm, root)
    how = reduction(op, required(x, "what is reduced", comm.rank).dtype)
    with comm.collective("reduce", x, op=called(op), root=root), in_one_piece(x, comm.rank) as flat:
        mine = flat if comm.rank == root else flat.clone()
        climb(comm, how.before(mine, comm.size), how, root)
        if comm.rank == root:
            how.after(mine, comm.size)


def climb(comm, mine, how, root: int = 0):
    """Combine `mine` [n] of all ranks into `root`'s, up a binomial tree; all change."""
    theirs = torch.empty_like(mine)
    for number, pairs in reversed(list(enumerate(binomial_tree(comm.size, root)))):
        for dst, src in pairs:
            if comm.rank == src:
                comm.send(mine, dst, number)
            elif comm.rank == dst:
                comm.recv(theirs, src, number)
                how.combine(mine, theirs)


def scatter(comm, out, parts=None, root: int = 0):
    """Give part r of `root`'s `parts` [a tensor a rank] to rank r, in `out` [the part's shape].

    Cost: p - 1 steps; rank `root` sends all parts but its own.
    """
    _existing(comm, root)
    with comm.collective("scatter", root=root):
        if comm.rank != root:
            return comm.recv(out, root)
        _one_a_rank(comm, parts, "parts")
        handles = [comm.isend(parts[r], r) for r in range(comm.size) if r != root]
        _keep(comm, out, parts[root])
        for handle in handles:
            handle.wait()


def gather(comm, x, outs=None, root: int = 0):
    """Collect `x` of every rank in `root`'s `outs` [a tensor a rank, shaped as that rank's x].

    Cost: p - 1 steps; every rank but `root` sends its n bytes.
    """
    _existing(comm, root)
    with comm.collective("gather", root=root):
        if comm.rank != root:
            return comm.send(x, root)
        _one_a_rank(comm, outs, "outs")
        handles = [comm.irecv(outs[r], r) for r in range(comm.size) if r != root]
        _keep(comm, outs[root], x)
        for handle in handles:
            handle.wait()


def all_gather(comm, outs, x):
    """Collect `x` of every rank in `outs` [a tensor a rank, shaped as that rank's x] everywhere.

    Each rank passes on to its right what came from its left.
    Cost: p - 1 steps; a rank sends all parts but its right neighbour's.
    """
    _one_a_rank(comm, outs, "outs")
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with comm.collective("all_gather", *outs):
        _keep(comm, outs[comm.rank], x)
        for step in range(comm.size - 1):
            mine, theirs = (comm.rank - step) % comm.size, (comm.rank - step - 1) % comm.size
            comm.exchange(outs[mine], right, outs[theirs], left, tag=step)


def reduce_scatter(comm, out, parts, op="sum"):
    """Combine part r [the same shape on all ranks] of everyone's `parts` into rank r's `out`.

    Partial results travel round the ring; each rank adds its own contribution.
    Cost: p - 1 steps; a rank sends all parts but its own.
    """
    _one_a_rank(comm, parts, "parts")
    _fitting(comm, out, parts[comm.rank])
    combine, before, after = reduction(op, parts[comm.rank].dtype)
    parts = [part.detach() for part in parts]
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with comm.collective("reduce_scatter", *parts, op=called(op)):
        mine = before(parts[left].clone(), comm.size)
        for step in range(comm.size - 1):
            part = parts[(comm.rank - 2 - step) % comm.size]
            theirs = torch.empty_like(part)
            comm.exchange(mine, right, theirs, left, tag=step)
            mine = before(part.clone(), comm.size)
            combine(mine, theirs)
        _keep(comm, out, after(mine, comm.size))


def all_to_all(comm, outs, parts):
    """Send part r of `parts` to rank r, and receive rank r's part for this rank in outs[r].

    Cost: p - 1 steps, in step s with the ranks s further and s back; all parts but one's own.
    """
    _one_a_rank(comm, parts, "parts")
    _one_a_rank(comm, outs, "outs")
    with comm.collective("all_to_all"):
        _keep(comm, outs[comm.rank], parts[comm.rank])
        for step in range(1, comm.size):
            dst, src = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
            comm.exchange(parts[dst], dst, outs[src], src, tag=step)


def _existing(comm, root):
    if not (isinstance(root, int) and 0 <= root < comm.size):
        raise ValueError(f"rank {comm.rank}: no root {root!r} among {comm.size} ranks")


def _one_a_rank(comm, tensors, role):
    count = len(tensors) if hasattr(tensors, "__len__") else tensors
    if count != comm.size:
        raise ValueError(f"rank {comm.rank}: {role} must hold {comm.size} tensors, not {count!r}")
    for tensor in tensors:
        required(tensor, f"each of {role}", comm.rank)


def _keep(comm, out, x):
    """Copy one's own part, which no message carries, by the rules of a message."""
    _fitting(comm, out, x).detach().copy_(x.detach().reshape(out.shape))


def _fitting(comm, out, x):
    required(x, "its own part", comm.rank)
    if (x.dtype, x.numel()) != (writable(out, comm.rank).dtype, out.numel()):
        mine, place = (describe(tensor.dtype, tensor.shape) for tensor in (x, out))
        raise ValueError(f"rank {comm.rank}: its own part is {mine}, but the place for it {place}")
    return out
