"""MPI's own collectives, where MPI itself is particular."""

import pytest
import torch

from course.worlds import mpi, run

pytest.importorskip("mpi4py")


def with_nothing(comm):
    """Every call on tensors of no element."""
    nothing = [torch.empty(0) for _ in range(comm.size)]
    comm.native.broadcast(nothing[0])
    comm.native.all_gather(nothing, torch.empty(0))
    comm.native.all_reduce(nothing[0])
    comm.native.reduce_scatter(nothing[0], nothing)
    x = torch.ones(1)
    comm.native.all_reduce(x)
    return x.item()


def test_a_tensor_of_no_element_is_broadcast_and_gathered_too():
    """The memory of nothing could not be written to, which MPI asks for: BufferError."""
    assert run(with_nothing, 3, on=mpi()) == [3.0] * 3
