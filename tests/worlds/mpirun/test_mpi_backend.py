"""MPI's own collectives: they are what they are called, and refuse what MPI does not have."""

import pytest
import torch

from course.worlds import mpi, run
from tests.worlds.sockets.test_torch_backend import every_call, ramp, told

pytest.importorskip("mpi4py")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_mpis_own_collectives_are_what_they_are_called(ranks):
    assert run(every_call, ranks, on=mpi()) == [[]] * ranks


def natively(comm):
    said = [
        told(comm.native.all_reduce, torch.ones(2, dtype=torch.bfloat16)),
        told(comm.native.all_reduce, torch.ones(2, dtype=torch.bool)),
        told(comm.native.all_reduce, torch.ones(2 + comm.rank)),
        told(comm.native.broadcast, torch.ones(2), 5),
    ]
    half = torch.full((3,), comm.rank, dtype=torch.bfloat16)
    comm.native.broadcast(half, root=2)
    group = comm.split(comm.rank % 2, key=-comm.rank)  # the last first
    x = ramp(comm.rank, 4)
    group.native.all_reduce(x)
    group.native.broadcast(first := torch.tensor([comm.rank]))
    return said, half.tolist(), x.tolist(), first.item()


def test_mpis_own_collectives_in_groups_and_what_they_refuse():
    results = run(natively, 4, on=mpi())
    said = results[0][0]
    assert said[0] == "ValueError: rank 0: MPI has no numbers of torch.bfloat16"
    assert said[1].startswith("ValueError: rank 0: MPI cannot do native.all_reduce #")
    assert said[2].startswith("CommMismatch: rank 0 is in native.all_reduce #")
    assert said[3] == "ValueError: rank 0: no root 5 among 4 ranks"
    even, odd = [20, 22, 24, 26], [40, 42, 44, 46]
    assert [(x, first) for _, _, x, first in results] == [(even, 2), (odd, 3)] * 2
    assert {tuple(half) for _, half, _, _ in results} == {(2.0, 2.0, 2.0)}


def test_a_rank_that_does_not_join_is_waited_for_no_longer_than_the_time_out():
    def one_alone(comm):
        native = comm.native
        return told(native.barrier) if comm.rank == 0 else "elsewhere"

    said = run(one_alone, 2, on=mpi(), checked=False, timeout=0.5)
    assert said == ["CommTimeout: rank 0 waited 0.5 s in native.barrier #2", "elsewhere"]


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
