"""One training in several ways, each as its framework wants it written.

A way is called `way(comm, net, deal)` on every rank.  It trains `net`, a `digit_net`, on the
batches `deal()`, or on this rank's part of each, `deal(rank, ranks)`, and returns the loss of each
batch, or None from a rank that does not know it.  Read them side by side: the loop is `train_loop`
for all that do not replace it.
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from course.parallel.array.layout import even_cuts
from course.parallel.data import DataParallel

RATE, BUCKET_MB, MICRO_BATCHES = 0.05, 1, 4


def train_loop(net, optimizer, batches):
    """What everybody writes: a step for each batch; the losses."""
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def alone(comm, net, deal):
    """Every rank does all of the work, alone."""
    return train_loop(net, SGD(net.parameters(), RATE), deal())


def by_course(comm, net, deal):
    """This book's data parallel."""
    net = DataParallel(net, comm, bucket_mb=BUCKET_MB)
    return train_loop(net, SGD(net.parameters(), RATE), deal(comm.rank, comm.size))


def by_ddp(comm, net, deal):
    """Torch's data parallel: whole weights on each rank, gradients averaged behind backward."""
    net = DistributedDataParallel(net, process_group=comm.native.group, bucket_cap_mb=BUCKET_MB)
    return train_loop(net, SGD(net.parameters(), RATE), deal(comm.rank, comm.size))


def by_fsdp(comm, net, deal):
    """Torch's fully sharded data parallel: each layer is a unit, gathered when it is needed."""
    mesh = DeviceMesh.from_group(comm.native.group, "cpu")
    for layer in net[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train_loop(net, SGD(net.parameters(), RATE), deal(comm.rank, comm.size))


def by_dtensor(comm, net, deal):
    """Torch's tensor parallel: layers cut by columns and by rows in turn, all ranks on all rows."""
    mesh = DeviceMesh.from_group(comm.native.group, "cpu")
    cuts = [ColwiseParallel(), RowwiseParallel()] * len(net)
    plan = {str(2 * number): cut for number, cut in zip(range(len(net[::2])), cuts)}
    net = parallelize_module(net, mesh, plan)
    return train_loop(net, SGD(net.parameters(), RATE), deal())


def by_pipelining(comm, net, deal):
    """Torch's pipeline: some layers on each rank, micro-batches in GPipe's order."""
    cuts = even_cuts(len(net), comm.size)
    part = net[cuts[comm.rank] : cuts[comm.rank + 1]]
    stage = PipelineStage(part, comm.rank, comm.size, comm.device, group=comm.native.group)
    schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=cross_entropy)
    optimizer, means = SGD(part.parameters(), RATE), []
    for x, y in deal():
        optimizer.zero_grad()
        given, losses = (x,) if stage.is_first else (), []
        schedule.step(*given, target=y, losses=losses)
        optimizer.step()
        if stage.is_last:
            means.append(torch.stack(losses).mean().item())
    return means or None


def by_compiling(comm, net, deal, backend="inductor"):
    """One process again, its network compiled: with inductor to C++, which takes a compiler."""
    return train_loop(torch.compile(net, backend=backend), SGD(net.parameters(), RATE), deal())


WAYS = {
    "one process": alone, "course": by_course, "DDP": by_ddp, "FSDP2": by_fsdp,
    "DTensor": by_dtensor, "pipelining": by_pipelining,
}  # fmt: skip
