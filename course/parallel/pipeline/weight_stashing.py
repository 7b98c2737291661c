"""PipeDream: a pipeline that is never empty, since no stage waits for the others to update.

Each micro-batch is a batch of its own, after whose backward a stage updates its weights at once.
Its backward needs the weights of its forward: they are stashed until then.  The price is staleness:
a gradient is of weights that have been updated p - 1 - s times meanwhile, at stage s of p.
Source: Narayanan et al. 2019, section 3.3.
"""

import torch
from torch.func import functional_call

from course.parallel.pipeline.pipeline import Pipeline
from course.parallel.pipeline.stage import Stage
from course.parallel.pipeline.step import BACKWARD, FORWARD


class PipeDream(Pipeline):
    """A pipeline whose `step` trains: on each micro-batch, a batch of its own, once.

    `optimizer(parameters)` makes that of each stage, which belongs to its weights as they are.
    Its `stages` {number: StashingStage} tell of staleness.
    Raises ValueError for a schedule of halves of backwards, and as Pipeline does.
    """

    def __init__(self, modules, comm, schedule, loss, optimizer, *, weigh=None):
        if {step.kind for step in schedule.order} != {FORWARD, BACKWARD}:
            raise ValueError("weights are updated after whole backwards: a schedule of PipeDream "
                             "has no I and W")  # fmt: skip
        super().__init__(modules, comm, schedule, loss, weigh=weigh)
        self.stages = {stage: StashingStage(kept.module, optimizer)
                       for stage, kept in self.stages.items()}  # fmt: skip

    def objective(self, targets, sizes):
        """Each batch counts alone, as a mean over its own rows."""
        objective = super().objective(targets, sizes)
        objective.factors = [float(factor > 0) for factor in objective.factors]
        return objective


class StashingStage(Stage):
    """A stage that updates its weights after each backward, and goes back through the weights that
    it went forward with: `stash` {version: weights}, `used` {micro-batch: version}.

    `staleness` [of each batch so far]: the updates between its forward and its backward;
    `most_versions`: how many versions of its weights there were at most, the latest included.
    """

    def __init__(self, module, optimizer):
        super().__init__(module)
        trained = [p for p in module.parameters() if p.requires_grad]
        self.optimizer = optimizer(trained) if trained else None
        self.version, self.stash, self.used = 0, {}, {}
        self.staleness, self.most_versions = [], 0

    def call(self, micro_batch, args, kwargs):
        if not torch.is_grad_enabled():
            return super().call(micro_batch, args, kwargs)
        if self.version not in self.stash:
            self.stash[self.version] = {
                name: p.detach().clone().requires_grad_(p.requires_grad)
                for name, p in self.module.named_parameters()
            }
        self.used[micro_batch] = self.version
        self.most_versions = max(self.most_versions, len(self.stash))
        return functional_call(self.module, self.stash[self.version], args, kwargs)

    def backward(self, micro_batch, slopes) -> dict:
        """Update the weights with the gradient that those of the forward have."""
        came, used = super().backward(micro_batch, slopes), self.used.pop(micro_batch)
        weights = self.stash[used]
        for name, parameter in self.module.named_parameters():
            parameter.grad, weights[name].grad = weights[name].grad, None
        if self.optimizer:
            self.optimizer.step()
        self.staleness.append(self.version - used)
        self.version += 1
        if used not in self.used.values():
            del self.stash[used]
        return came
