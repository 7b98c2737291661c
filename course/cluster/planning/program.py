"""A plan as it runs: the real parallel programs, on real ranks or on imagined ones."""

from typing import NamedTuple

import torch
from torch import nn

from course.cluster.planning.by_servers import ByServers
from course.cluster.planning.transformer import TransformerBlock
from course.learning.training.letters import letter_loss
from course.parallel.hybrid import Grid
from course.parallel.pipeline import Pipeline
from course.parallel.tensor import ColumnLinear, HeadAttention, RowLinear, tensor_parallel
from course.worlds import processes, run, simulated

ALGORITHM = "halving_doubling"  # along the tensor axis: the bytes of a ring, in fewer messages


class PlannedTraining:
    """This rank's part of a plan's training: its stage, cut over its tensor group, in `dtype`; a
    gradient that is the mean over the data axis; Adam.

    All ranks of a data group read other rows, all others of the same ones: `share` cuts a batch.
    Cost of a step: `traffic` in `prediction.py`.  Raises ValueError where the plan has other ranks.
    """

    def __init__(self, comm, plan, dtype=torch.bfloat16):
        self.plan, self.grid = plan, Grid(comm, **plan.axes)
        number = self.grid.coordinates["pipeline"]
        with torch.device(comm.device):
            stage = plan.network.stages(plan.pipeline)[number].to(dtype)
        self.stage = cut_stage(stage, self.grid["tensor"])
        self.pipeline = Pipeline({number: self.stage}, self.grid["pipeline"], plan.schedule,
                                 letter_loss)  # fmt: skip
        self.update = DataUpdate(self.grid["data"], list(self.stage.parameters()), plan.sharded)

    def share(self, batch):
        """This rank's rows of a batch [rows, ...]."""
        return batch.tensor_split(self.plan.data)[self.grid.coordinates["data"]]

    def step(self, letters, following):
        """Train on one batch [rows, length]; the loss of this rank's rows on the last stage, else
        None."""
        self.stage.zero_grad()
        loss = self.pipeline.step(self.share(letters), target=self.share(following))
        self.update.step()
        return loss


def cut_stage(stage, comm):
    """The blocks of a stage cut over a tensor group, in place; what rests is divided, too."""
    how = {"*.attention": _by_heads, "*.up": _linear(ColumnLinear), "*.down": _linear(RowLinear)}
    for part in stage:
        if isinstance(part, TransformerBlock):
            part.rest_flops /= comm.size
    return tensor_parallel(stage, comm, how)


def _by_heads(comm, layer):
    return FusedHeads(comm, layer.qkv, layer.out, layer.heads, causal=True, algorithm=ALGORITHM)


def _linear(kind):
    return lambda comm, layer: kind(comm, layer, algorithm=ALGORITHM)


class FusedHeads(HeadAttention):
    """HeadAttention that a GPU computes in one kernel, as FlashAttention does: its scores never
    reach the memory.  On shapes alone torch would choose the operations of a CPU, which write them.
    """

    def _attend(self, q, k, v):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(q, k, v, 0.0, True)[0] if q.is_meta else super()._attend(q, k, v)


class DataUpdate:
    """Sums gradients over the ranks of `comm` and lets Adam change the weights; if `sharded`, each
    rank has the state of its part alone.  Weights of half types have float32 masters.

    Cost of a step: a reduce-scatter of the gradient and an all-gather of it, or (if `sharded`) of
    the weights; server by server (`ByServers`).
    """

    def __init__(self, comm, parameters, sharded, lr=1e-3):
        self.comm, self.parameters, self.sharded = comm, parameters, sharded
        flat = torch.cat([p.detach().flatten() for p in parameters])
        self.sums = ByServers(comm, len(flat))
        mine = self.sums.own(flat) if sharded else flat
        self.own = nn.Parameter(mine.float() if mine.dtype.itemsize < 4 else mine.clone())
        self.adam = torch.optim.Adam([self.own], lr=lr)

    def step(self):
        """From the gradients of this rank's rows to new weights."""
        gradient = torch.cat([p.grad.flatten() for p in self.parameters])
        gradient = self.sums.reduce_scatter(gradient.div_(self.comm.size))  # no second copy
        if not self.sharded:
            gradient = self.sums.all_gather(gradient)
        self.own.grad = gradient.to(self.own.dtype)
        self.adam.step()
        self._publish(self.own.detach().to(gradient.dtype))

    def _publish(self, flat):
        """The weights, this rank's part or all of them, into the network."""
        flat = self.sums.all_gather(flat) if self.sharded else flat
        with torch.no_grad():
            for p, part in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
                p.copy_(part.view(p.shape))


class Step(NamedTuple):
    """One step of a plan: its seconds, bytes that each rank sent, and how it was found; `report`
    of the imagined cluster, in which the step began at `start_s`."""

    seconds: float
    sent_bytes: list
    source: str
    report: object = None
    start_s: float = 0.0


def simulated_step(plan, achieved: float = 1.0) -> Step:
    """A step of the real program on the plan's imagined cluster, on shapes alone, in bf16 (float32
    where layers rest)."""
    world = simulated(plan.node.cluster(plan.nodes, achieved), device="meta")
    said = run(timed, plan.ranks, plan, 1, on=world, checked=False, timeout=None)
    (start, *_), ends = zip(*((before, after) for [(before, after)], _ in said))
    return Step(max(ends) - start, [sent for _, sent in said], "simulated", world.report, start)


def measured_step(plan, turns: int = 3, world=None) -> Step:
    """The fastest of some steps on real ranks, after one to warm up; of resting layers, the
    arithmetic needs no core."""
    world = world or processes(oversubscribe=True)
    said = run(timed, plan.ranks, plan, turns, True, on=world, checked=False, timeout=120)
    spans, sent = zip(*said)
    seconds = [max(b for _, b in turn) - min(a for a, _ in turn) for turn in zip(*spans)]
    return Step(min(seconds), [nbytes // turns for nbytes in sent], "measured")


def timed(comm, plan, turns, warm=False):
    """([when each of this rank's steps began and ended], bytes sent in all of them)."""
    training = PlannedTraining(comm, plan, torch.float32 if plan.network.rest_flops
                               else torch.bfloat16)  # fmt: skip
    with torch.device(comm.device):
        letters = torch.zeros(plan.rows, plan.network.length, dtype=torch.long)
    if warm:
        training.step(letters, letters)
    comm.barrier()
    sent, spans = comm.meter.sent_bytes, []
    for _ in range(turns):
        before = comm.clock()
        training.step(letters, letters)
        spans.append((before, comm.clock()))
    return spans, comm.meter.sent_bytes - sent
