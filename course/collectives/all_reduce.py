"""All-reduce: everybody gets the sum (mean, ...) of everybody's tensor.

One function, several algorithms: `tree.py`, `ring.py`, `doubling.py` and `hierarchical.py` have
them.  What each costs: `cost.py`; which is the fastest: `choice.py`.
"""

from course.collectives.basic import is_whole
from course.collectives.choice import THIS_MACHINE, Choice, Fabric, choose
from course.collectives.doubling import by_halving_doubling, by_recursive_doubling
from course.collectives.hierarchical import by_nodes
from course.collectives.reduction import Reduction, in_one_piece, op_name
from course.collectives.ring import by_ring
from course.collectives.tree import by_flat, by_tree
from course.comm.tensors import required


def all_reduce(comm, x, op="sum", *, algorithm="ring", segment_bytes=None, fabric=THIS_MACHINE):
    """Combine `x` [any shape] of all ranks on all ranks, in place, bitwise the same everywhere.

    op: sum, mean, prod, min, max, or an elementwise, associative and commutative function of two
    tensors.  Messages have the dtype of `x`: a sum of halves is rounded at every term, as NCCL's.
    algorithm: flat, tree, recursive_doubling, ring, halving_doubling, hierarchical, native (the
    backend's), or auto: what `choice.choose` finds the fastest of ours on `fabric`.
    segment_bytes: the length of the messages into which ring and hierarchical cut a chunk (None:
    as `ring.segment_length` has it); the others send what they send in one message.
    Cost: cost.py.
    Raises ValueError for arguments that cannot be, CommMismatch if the ranks' calls differ.
    """
    if algorithm == "native":
        return comm.native.all_reduce(x, op)
    reduction = Reduction.of(op, required(x, "what is reduced", comm.rank).dtype)
    if algorithm == "auto":
        algorithm = chosen(comm, x, fabric).algorithm
    if algorithm not in ALGORITHMS:
        names = ", ".join([*ALGORITHMS, "native", "auto"])
        raise ValueError(f"rank {comm.rank}: algorithm must be one of {names}, not {algorithm!r}")
    cut, segment = {}, {}
    if segment_bytes is not None:
        cut = {"segment_bytes": _checked_segment(comm, segment_bytes)}
        if algorithm in IN_SEGMENTS:
            segment = {"segment": max(1, segment_bytes // x.element_size())}
    this_call = comm.collective("all_reduce", x, op=op_name(op), by=algorithm, **cut)
    with this_call, in_one_piece(x, comm.rank) as flat:
        ALGORITHMS[algorithm](comm, flat, reduction, **segment)


def chosen(comm, x, fabric=THIS_MACHINE) -> Choice:
    """What `auto` does with `x` on these ranks, and why."""
    required(x, "what is reduced", comm.rank)
    if not isinstance(fabric, Fabric):
        raise ValueError(f"rank {comm.rank}: fabric must be a choice.Fabric, not {fabric!r}")
    if comm.node_memory() is None or x.device.type != "cpu":
        fabric = fabric._replace(memory=None)
    return choose(comm.nodes, x.numel(), x.element_size(), fabric)


def _checked_segment(comm, segment_bytes):
    if not is_whole(segment_bytes) or segment_bytes < 1:
        rule = "segment_bytes must be a whole number of at least 1"
        raise ValueError(f"rank {comm.rank}: {rule}, not {segment_bytes!r}")
    return segment_bytes


ALGORITHMS = {
    "flat": by_flat,
    "tree": by_tree,
    "recursive_doubling": by_recursive_doubling,
    "ring": by_ring,
    "halving_doubling": by_halving_doubling,
    "hierarchical": by_nodes,
}
IN_SEGMENTS = ("ring", "hierarchical")
