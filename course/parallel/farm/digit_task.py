"""Training a network for digits, as a task of a farm: it can be stopped and goes on elsewhere."""

from typing import NamedTuple

import torch

from course.learning.training.digits import Split, backward, batches, digit_net, judge


class Candidate(NamedTuple):
    """What is to be tried: a rate of plain SGD, a batch, and the seed of network and order."""

    rate: float
    batch: int = 32
    seed: int = 0


class DigitState(NamedTuple):
    """The steps that are done, and the weights after them, by name."""

    steps: int
    weights: dict


class DigitTask(NamedTuple):
    """The task on the images of `split`: task(candidate, state, steps) -> (loss, state), as
    `successive_halving` wants it; the loss is that of the images for validation."""

    split: Split

    def __call__(self, candidate: Candidate, state: DigitState | None, steps: int) -> tuple:
        net, done = digit_net(candidate.seed), state.steps if state else 0
        if state:
            net.load_state_dict(state.weights)
        deal = batches(self.split.training, candidate.batch, done + steps, candidate.seed)
        for x, y in deal[done:]:
            backward(net, x, y)
            with torch.no_grad():
                for p in net.parameters():
                    p.sub_(p.grad, alpha=candidate.rate)
        return judge(net, self.split.validation).loss, DigitState(done + steps, net.state_dict())
