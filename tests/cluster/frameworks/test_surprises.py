"""What notebook 24 tells of torch: where a version changes this, the notebook has to change."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from course.worlds import RankError, run

# no more true, if ever


def norms(comm):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)), torch.ones(3, 4)
    net(x).square().sum().backward()
    whole = clip_grad_norm_(net.parameters(), 1e9).item()
    net.zero_grad()
    mesh = DeviceMesh.from_group(comm.native.group, "cpu")
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    net(x).square().sum().backward()
    return whole, clip_grad_norm_(net.parameters(), 1e9).full_tensor().item()


def test_clipping_knows_distributed_tensors():
    for whole, of_parts in run(norms, 2):
        assert of_parts == pytest.approx(whole, rel=1e-5)


def transposed(comm):
    x = torch.arange(6.0).reshape(2, 3).T
    dist.all_reduce(x, group=comm.native.group)
    return x.tolist()


def test_a_tensor_that_is_transposed_on_all_ranks_is_added_up_rightly():
    assert run(transposed, 2) == [[[0, 6], [2, 8], [4, 10]]] * 2


def pipelined(comm, schedule, rows, micro_batches):
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 4), torch.randn(rows, 4)
    stage = PipelineStage(layer, comm.rank, 2, comm.device, group=comm.native.group)
    given, losses = (x,) if stage.is_first else (), []
    try:
        schedule(stage, micro_batches, loss_fn=mse_loss).step(*given, target=x, losses=losses)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "done"


def test_fewer_micro_batches_than_stages_are_fine_for_gpipe_and_refused_by_1f1b():
    assert run(pipelined, 2, ScheduleGPipe, 4, 1) == ["done"] * 2
    assert all(
        "must be greater than or equal" in said for said in run(pipelined, 2, Schedule1F1B, 4, 1)
    )


# still true


def test_rows_that_do_not_divide_by_the_micro_batches_fail_on_one_rank_and_the_other_waits():
    waited, failed = run(pipelined, 2, ScheduleGPipe, 5, 2, timeout=3.0)
    assert "must match the size" in failed and "Timed out" in waited


def other_lengths(comm):
    x = torch.ones(4 + 2 * comm.rank)
    dist.all_reduce(x, group=comm.native.group)


def test_other_lengths_end_a_process():
    with pytest.raises(RankError, match="SIGABRT"):
        run(other_lengths, 2, timeout=5.0)


def too_short(comm):
    x = torch.full((5 - 2 * comm.rank,), float(comm.rank))
    (dist.recv if comm.rank == 0 else dist.send)(x, 1 - comm.rank, group=comm.native.group)
    return x.tolist()


def test_a_message_that_is_too_short_is_received_in_silence():
    assert run(too_short, 2)[0] == [1, 1, 1, 0, 0]


def two_operations(comm):
    x, what = torch.tensor([1.0 + comm.rank]), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][comm.rank]
    dist.all_reduce(x, what, group=comm.native.group)
    return x.item()


def test_two_operations_are_mixed_in_silence():
    assert len(run(two_operations, 2)) == 2
