"""A net whose stages are on different ranks, trained by any schedule.

`Pipeline(modules, comm, schedule, loss).step(x, target=y)` leaves in every parameter the gradient
of the mean loss over all rows of the batch, as one process would.
"""

import json
import math

import torch
from torch import nn

from course.comm.tensors import describe
from course.parallel.pipeline.batches import cut, rows_of, sizes_of
from course.parallel.pipeline.execution import Execution
from course.parallel.pipeline.mail import Mail
from course.parallel.pipeline.parcels import joined, pack, tensors_of
from course.parallel.pipeline.schedule import INPUT
from course.parallel.pipeline.stage import Stage
from course.parallel.pipeline.step import FORWARD, Step
from course.parallel.pipeline.tied import TiedWeights
from course.parallel.pipeline.timing import Span, Timing


class Pipeline(nn.Module):
    """The stages that `schedule` puts on this rank of `comm`, of `modules` [stage].

    A stage is called with what those before it give (a tuple as several arguments), and gives
    tensors, numbers, texts, None, or tuples, lists and dicts of them, in shapes that may change.
    `loss(output, target)` of the last stage is a mean over rows; micro-batches count by their rows,
    or by `weigh(target)`.  `tied` are weights that stages share: see `tied.py`; with `recompute`
    stages keep what comes in alone.  Batch norms see micro-batches, one after another, not the
    batch; random numbers are each rank's own.

    Cost of a step: `cost.py`; and an all-reduce of each tied weight.
    Raises ValueError for a schedule of other ranks, or one that is not the same on all of them, and
    for a weight that stages of several ranks share untold.  A step that raises in the middle ends
    the pipeline, since messages of it may be under way.
    """

    def __init__(self, modules, comm, schedule, loss=None, *, tied=(), recompute=False, weigh=None):
        super().__init__()
        if len(schedule.rows) != comm.size:
            raise ValueError(f"rank {comm.rank}: a schedule of {len(schedule.rows)} ranks cannot "
                             f"run on {comm.size}")  # fmt: skip
        self.comm, self.schedule, self.loss, self.weigh = comm.split(0), schedule, loss, weigh
        tied = [list(group) for group in tied or ()]
        _require_same(self.comm, schedule, tied)
        here = schedule.own_stages(comm.rank)
        own = {stage: _module(modules, stage, comm.rank) for stage in here}
        self.parts = nn.ModuleDict({str(stage): module for stage, module in own.items()})
        self.stages = {stage: Stage(part, recompute) for stage, part in own.items()}
        self.mail = Mail(self.comm, schedule)
        self.tied = TiedWeights(self.comm, schedule, modules, tied)
        self.spans, self.peak_live = [], 0

    def step(self, *args, target=None, sizes=None, **kwargs):
        """Forward and backward of a batch; the loss, where the last stage is, else None.

        Inputs are needed where a stage takes them, the target by the last stage; others may pass
        them too.  `sizes`: the rows of each micro-batch, else as equal as can be.
        Raises ValueError for rows that do not agree.
        """
        self._require_ranks()
        if not torch.is_grad_enabled():
            raise RuntimeError("a step goes backward: under no_grad(), call the pipeline itself")
        needed = self._has_last or self._takers
        batches = self._micro_batches(args, kwargs, target, sizes) if needed else [[]] * 3
        objective = self.objective(*batches[1:]) if self._has_last else None
        with self.tied.summed():
            done = self._run(self.schedule.rows[self.comm.rank], batches, objective)
            self.spans, self.peak_live = done.spans, done.peak_live
            self._input_gradients((args, kwargs))
        return objective and sum((objective.losses or {0: torch.zeros(())}).values())

    def objective(self, targets, sizes) -> "Objective":
        """What the last stage's output is worth, micro-batch by micro-batch."""
        if self.loss is None:
            raise ValueError(f"rank {self.comm.rank} has the last stage, and a step goes back from "
                             "a loss: Pipeline(modules, comm, schedule, loss)")  # fmt: skip
        return Objective(self.loss, self.weigh, targets, sizes)

    @torch.no_grad()
    def forward(self, *args, sizes=None, **kwargs):
        """What the last stage gives for a batch, where that is, else None; no gradient."""
        self._require_ranks()
        found = {}
        batches = self._micro_batches(args, kwargs, None, sizes) if self._takers else [[]] * 3
        steps = [step for step in self.schedule.rows[self.comm.rank] if step.kind == FORWARD]
        self._run(steps, batches, lambda number, out: found.update({number: out}) or [])
        return joined([found[number] for number in sorted(found)]) if found else None

    def timing(self) -> Timing:
        """When each rank did what in the last step, if they have one clock.  Collective: an
        all-gather."""
        spans = [(*step, start, end) for step, start, end in self.spans]
        everyone = [json.loads(text) for text in self.comm.gather_texts(json.dumps(spans))]
        return Timing([[Span(Step(*row[:3]), *row[3:]) for row in rows] for rows in everyone])

    @property
    def _has_last(self) -> bool:
        return self.schedule.stages - 1 in self.stages

    @property
    def _takers(self) -> list[int]:
        """The stages here that take from the batch itself."""
        return [stage for stage in self.stages if INPUT in self.schedule.takes[stage]]

    def _micro_batches(self, args, kwargs, target, sizes) -> tuple:
        """Inputs and targets cut, and the sizes."""
        rank, count = self.comm.rank, self.schedule.micro_batches
        rows = rows_of((args, kwargs, target), rank)
        sizes = sizes_of(rows, sizes, count, rank)
        return cut((args, kwargs), sizes), cut(target, sizes), sizes

    def _run(self, steps, batches, finish) -> Execution:
        inputs, _, sizes = batches
        self.mail.begin(not torch.is_grad_enabled(), sizes)
        for stage in self._takers:
            for number, value in enumerate(inputs):
                self.mail.give(pack(value, "the batch"), INPUT, stage, number)
        execution = Execution(self.schedule, self.stages, self.mail, finish)
        comm, self.comm = self.comm, None
        execution.run(steps)
        self.comm = comm  # unless it broke off
        return execution

    def _input_gradients(self, batch):
        """Let the gradient of the batch go on to where that comes from."""
        wanted = [x for x in tensors_of(batch) if x.requires_grad]
        for stage in self._takers:
            numbers = range(self.schedule.micro_batches)
            each = [self.mail.take_back(INPUT, stage, number) for number in numbers]
            if wanted:
                slopes = [torch.cat(s) if s[0].dim() else sum(s) for s in zip(*each)]
                torch.autograd.backward(wanted, slopes, retain_graph=stage != self._takers[-1])

    def _require_ranks(self):
        if self.comm is None:
            raise RuntimeError("this pipeline is a copy, or was loaded, or a step of it broke off, "
                               "and joined to no ranks: make another one of its parts")  # fmt: skip

    def __getstate__(self):
        """All but what joins this rank to the others."""
        return {**super().__getstate__(), "comm": None, "mail": None, "tied": None}


class Objective:
    """The loss of each micro-batch as its part of the batch's; `losses` {number: that part}."""

    def __init__(self, loss, weigh, targets, sizes):
        weights = [float(weigh(target)) for target in targets] if weigh else sizes
        if not all(0 <= weight < math.inf for weight in weights):
            raise ValueError(f"what micro-batches weigh are numbers of 0 or more, not {weights}")
        self.factors = [weight / (sum(weights) or 1) for weight in weights]
        self.loss, self.targets, self.losses = loss, targets, {}

    def __call__(self, number, out) -> torch.Tensor:
        """The tensor whose backward is that of micro-batch `number`, whose output is `out`."""
        if self.factors[number] == 0:  # the mean over no rows is not a number
            return sum([x.sum() for x in tensors_of(out) if x.requires_grad], torch.zeros(())) * 0.0
        target = self.targets[number]
        value = self.loss(out) if target is None else self.loss(out, target)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            what = isinstance(value, torch.Tensor) and describe(value.dtype, value.shape)
            raise ValueError(f"a loss is a tensor of one number, not {what or repr(value)}")
        value = value * self.factors[number]
        self.losses[number] = value.detach()
        return value


def _module(modules, stage, rank):
    try:
        if isinstance(modules[stage], nn.Module):
            return modules[stage]
        what = f"{modules[stage]!r:.40} is none"
    except LookupError:
        what = "none"
    raise ValueError(f"rank {rank} has stage {stage}, and needs a module for it: {what} was given")


def _require_same(comm, schedule, tied):
    texts = comm.gather_texts(f"{schedule.rows} {schedule.takes}\n{tied}")
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise ValueError(f"all ranks run the same schedule and tie the same weights: rank "
                             f"{rank} has others than rank 0")  # fmt: skip
