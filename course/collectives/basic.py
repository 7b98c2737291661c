"""Collectives built from send and recv alone, named and shaped as in torch.distributed.

A plan says who sends to whom in which round; the same plan is drawn, reckoned with, and run.
Parts may have different sizes on different ranks, and may be empty.  Tensors that share memory do
no harm where what is written there is not needed any more, and are refused otherwise.
"""

import numbers

import torch

from course.collectives.aliases import overwritten
from course.collectives.reduction import Reduction, in_one_piece, op_name
from course.collectives.ring import Step, all_gather_steps, reduce_scatter_steps
from course.collectives.tree import binomial_tree, flat_tree, pass_down_tree, reduce_up_tree
from course.comm.tensors import describe, required, writable


def broadcast(comm, x, root: int = 0):
    """Copy `x` [any shape] of rank `root` to all ranks, in place, down a binomial tree.

    Cost: ceil(lg p) steps of N bytes; p - 1 messages in all.
    """
    root = _check_root(comm, root)
    required(x, "what is broadcast", comm.rank)
    with comm.collective("broadcast", x, root=root):
        pass_down_tree(comm, binomial_tree(comm.size, root), x)


def reduce(comm, x, op="sum", root: int = 0):
    """Combine `x` [any shape] of all ranks into rank `root`'s, up a binomial tree; the others keep
    theirs.

    Cost: ceil(lg p) steps of N bytes; p - 1 messages in all.
    """
    root = _check_root(comm, root)
    reduction = Reduction.of(op, required(x, "what is reduced", comm.rank).dtype)
    this_call = comm.collective("reduce", x, op=op_name(op), root=root)
    with this_call, in_one_piece(x, comm.rank) as flat:
        mine = flat if comm.rank == root else flat.clone()
        reduction.before(mine, comm.size)
        reduce_up_tree(comm, binomial_tree(comm.size, root), mine, reduction)
        if comm.rank == root:
            reduction.after(mine, comm.size)


def scatter(comm, out, parts=None, root: int = 0):
    """Give part r of `root`'s `parts` [a tensor a rank] to rank r, in `out` [the part's shape].

    Cost: p - 1 steps; rank `root` sends all parts but its own.
    """
    root = _check_root(comm, root)
    with comm.collective("scatter", root=root):
        if comm.rank != root:
            return comm.recv(out, root)
        _check_parts(comm, parts, "parts")
        _check_fits(comm, out, parts[root])
        handles = [comm.isend(parts[r], r) for [(_, r)] in flat_tree(comm.size, root)]
        for handle in handles:
            handle.wait()
        _copy_own(comm, out, parts[root])  # not before: `out` may be one of the parts


def gather(comm, x, outs=None, root: int = 0):
    """Collect `x` of every rank in `root`'s `outs` [a tensor a rank, shaped as that rank's x].

    Cost: p - 1 steps; every rank but `root` sends its N bytes.
    """
    root = _check_root(comm, root)
    with comm.collective("gather", root=root):
        if comm.rank != root:
            return comm.send(x, root)
        _check_parts(comm, outs, "outs")
        overwritten(comm.rank, outs)
        _copy_own(comm, outs[root], x)  # not later: `x` may be one of the other outs
        handles = [comm.irecv(outs[r], r) for [(_, r)] in flat_tree(comm.size, root)]
        for handle in handles:
            handle.wait()


def all_gather(comm, outs, x):
    """Collect `x` of every rank in `outs` [a tensor a rank, shaped as that rank's x] everywhere.

    Each rank passes on to its right what came from its left.
    Cost: p - 1 steps; a rank sends all parts but its right neighbour's.
    """
    _check_parts(comm, outs, "outs")
    overwritten(comm.rank, outs)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with comm.collective("all_gather", *outs):
        _copy_own(comm, outs[comm.rank], x)
        for number, step in enumerate(all_gather_steps(comm.size, comm.rank)):
            comm.exchange(outs[step.send], right, outs[step.receive], left, tag=number)


def reduce_scatter(comm, out, parts, op="sum"):
    """Combine part r [the same shape on all ranks] of everyone's `parts` into rank r's `out`.

    Partial results travel round the ring; each rank adds its own contribution.
    Cost: p - 1 steps; a rank sends all parts but its own.
    """
    _check_parts(comm, parts, "parts")
    _check_fits(comm, out, parts[comm.rank])
    combine, before, after = Reduction.of(op, parts[comm.rank].dtype)
    parts = [part.detach() for part in parts]
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with comm.collective("reduce_scatter", *parts, op=op_name(op)):
        mine = before(parts[left].clone(), comm.size)
        for number, step in enumerate(reduce_scatter_steps(comm.size, comm.rank)):
            part = parts[step.receive]
            theirs = torch.empty_like(part)
            comm.exchange(mine, right, theirs, left, tag=number)
            mine = before(part.clone(), comm.size)
            combine(mine, theirs)
        _copy_own(comm, out, after(mine, comm.size))


def pairwise_steps(p: int, rank: int) -> list[Step]:
    """Whose part `rank` sends, to that rank itself, and from whom it receives: in step s to the
    rank s places further, from the one s places back."""
    return [Step((rank + s) % p, (rank - s) % p, False) for s in range(1, p)]


def all_to_all(comm, outs, parts):
    """Send part r of `parts` to rank r, and receive rank r's part for this rank in outs[r].

    Parts that share memory with an out are copied before (`all_to_all(comm, x, x)` works).
    Cost: p - 1 steps, in step s with the ranks s further and s back; all parts but one's own.
    """
    _check_parts(comm, parts, "parts")
    _check_parts(comm, outs, "outs")
    copied = overwritten(comm.rank, outs, parts)
    parts = [part.detach().clone() if r in copied else part for r, part in enumerate(parts)]
    with comm.collective("all_to_all"):
        _copy_own(comm, outs[comm.rank], parts[comm.rank])
        for number, step in enumerate(pairwise_steps(comm.size, comm.rank), start=1):
            out = outs[step.receive]
            comm.exchange(parts[step.send], step.send, out, step.receive, tag=number)


def is_whole(number) -> bool:
    """Whether it is a whole number of any type, but no truth value."""
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)


def _check_root(comm, root) -> int:
    if not (is_whole(root) and 0 <= root < comm.size):
        raise ValueError(f"rank {comm.rank}: no root {root!r} among {comm.size} ranks")
    return int(root)


def _check_parts(comm, tensors, role):
    count = len(tensors) if hasattr(tensors, "__len__") else tensors
    if count != comm.size:
        raise ValueError(f"rank {comm.rank}: {role} must hold {comm.size} tensors, not {count!r}")
    for tensor in tensors:
        required(tensor, f"each of {role}", comm.rank)


def _copy_own(comm, out, x):
    """Copy one's own part, which no message carries, by the rules of a message."""
    x = x.detach().reshape(_check_fits(comm, out, x).shape)
    out.detach().copy_(x.clone() if overwritten(comm.rank, [out], [x]) else x)


def _check_fits(comm, out, x):
    required(x, "its own part", comm.rank)
    if (x.dtype, x.numel()) != (writable(out, comm.rank).dtype, out.numel()):
        mine, place = (describe(tensor.dtype, tensor.shape) for tensor in (x, out))
        raise ValueError(f"rank {comm.rank}: its own part is {mine}, but the place for it {place}")
    return out
