"""A flat tensor in pieces, one for each rank: added up at their owners, or passed on to everybody.

The two halves of a ring all-reduce, in place.  Source: Rajbhandari et al. 2019, section 7.
"""

from course.collectives.reduction import Reduction
from course.collectives.ring import all_gather_steps, reduce_scatter_steps, run_ring


def add_up(comm, pieces):
    """The sum over ranks of piece r [of any size, in all `pieces` of a flat tensor] is at rank r;
    the other pieces are partial sums afterwards.

    Cost: a reduce-scatter: p - 1 steps; a rank sends all pieces but its own.
    """
    with comm.collective("reduce_scatter", *pieces, op="sum"):
        _round_the_ring(comm, pieces, reduce_scatter_steps(comm.size, comm.rank))


def pass_on(comm, pieces):
    """Everybody's `pieces` [of any size] become what their owners have: rank r piece r.

    Cost: an all-gather: p - 1 steps; a rank sends all pieces but its right neighbour's.
    """
    with comm.collective("all_gather", *pieces):
        _round_the_ring(comm, pieces, all_gather_steps(comm.size, comm.rank))


def _round_the_ring(comm, pieces, steps):
    if steps:
        reduction = Reduction.of("sum", pieces[0].dtype)
        run_ring(comm, range(comm.size), steps, pieces, reduction, None)
