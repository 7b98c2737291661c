"""All-reduce: everybody gets the sum (mean, ...) of everybody's tensor.

One function, several algorithms: `flat` and `tree` here, `ring`, `recursive_doubling`,
`halving_doubling` and `hierarchical` in files of their own.  What each costs: `cost.py`; which is
the fastest: `choice.py`.
"""

import torch

from course.collectives.basic import broadcast, climb
from course.collectives.choice import HERE, Choice, choose
from course.collectives.doubling import by_halving_doubling, by_recursive_doubling
from course.collectives.hierarchical import by_nodes
from course.collectives.reduction import called, in_one_piece, reduction
from course.collectives.ring import by_ring
from course.comm.tensors import required


def all_reduce(comm, x, op="sum", *, algorithm="ring", segment_bytes=None, fabric=HERE):
    """Combine `x` [any shape] of all ranks on all ranks, in place, bitwise the same everywhere.

    op: sum, mean, prod, min, max, or an associative and commutative function of two tensors.
    algorithm: flat, tree, recursive_doubling, ring, halving_doubling, hierarchical, native (the
    backend's), or auto: what `choice.choose` finds the fastest of ours on `fabric`.
    Cost: cost.py; a ring cuts its chunks into segments (of `segment_bytes`, else as `ring.fitting`
    has it), each metered as a message.
    Raises ValueError for an unknown op or algorithm, CommMismatch if the ranks' calls differ.
    """
    if algorithm == "native":
        return comm.native.all_reduce(x, op)
    if algorithm == "auto":
        algorithm = chosen(comm, x, fabric).algorithm
    if algorithm not in ALGORITHMS:
        names = ", ".join([*ALGORITHMS, "native", "auto"])
        raise ValueError(f"rank {comm.rank}: algorithm must be one of {names}, not {algorithm!r}")
    how = reduction(op, required(x, "what is reduced", comm.rank).dtype)
    cut, segment = {}, None
    if segment_bytes is not None:
        cut, segment = {"segment_bytes": segment_bytes}, max(1, segment_bytes // x.element_size())
    this_call = comm.collective("all_reduce", x, op=called(op), by=algorithm, **cut)
    with this_call, in_one_piece(x, comm.rank) as flat:
        ALGORITHMS[algorithm](comm, flat, how, segment)


def chosen(comm, x, fabric=HERE) -> Choice:
    """What `auto` does with `x` on these ranks, and why."""
    required(x, "what is reduced", comm.rank)
    if comm.node_memory() is None or x.device.type != "cpu":
        fabric = fabric._replace(memory=None)
    return choose(comm.nodes, x.numel(), x.element_size(), fabric)


def by_rank_0(comm, flat, how, segment):
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


def by_tree(comm, flat, how, segment):
    """All-reduce up a binomial tree to rank 0, and down again."""
    climb(comm, how.before(flat, comm.size), how)
    if comm.rank == 0:
        how.after(flat, comm.size)
    broadcast(comm, flat)


ALGORITHMS = {
    "flat": by_rank_0,
    "tree": by_tree,
    "recursive_doubling": by_recursive_doubling,
    "ring": by_ring,
    "halving_doubling": by_halving_doubling,
    "hierarchical": by_nodes,
}
