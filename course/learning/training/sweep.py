"""How many steps does a batch size need?  Every learning rate and seed is tried, side by side.

`steps_to_target` trains the `digit_net` of `course/learning/training/digits.py` in as many copies
as there are rates and seeds, as one stack of networks; `critical_batch_size` fits what was found.
"""

import math

import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from course.learning.training import descent, digits

LOOK = 32  # images between two looks at the validation images, where a batch has fewer


def steps_to_target(batch, rates, target=0.05, most=2000) -> torch.Tensor:
    """Steps until at most `target` of the validation images are wrong: [rates, seeds] of float64.

    Plain SGD with a constant rate.  It ends when the mean over the seeds is known for the best of
    the `rates` and no other can be half as fast, or after `most` steps; who has not arrived, has
    inf.  Cost: a step of `len(rates)` times five networks.
    """
    (x, y), validation, _ = digits.digit_split(torch.float64)
    deals = [descent.batches(len(x), batch, seed) for seed in digits.SEEDS]
    nets = [digits.digit_net(seed).double() for _ in rates for seed in digits.SEEDS]
    weights = stack_module_state(nets)[0]
    each_rate = torch.tensor(rates, dtype=torch.float64).repeat_interleave(len(deals))
    steps = torch.full((len(nets),), math.inf, dtype=torch.float64)
    for step in range(1, most + 1):
        rows = torch.stack([next(deal) for deal in deals]).repeat(len(rates), 1)
        _step(nets[0], weights, x[rows], y[rows], each_rate)
        if step % max(1, LOOK // batch) == 0:
            arrived = _wrong(nets[0], weights, validation) <= target
            steps[arrived & steps.isinf()] = step
            best = steps.view(len(rates), -1).mean(dim=1).min()
            if steps.isfinite().all() or step >= 2 * best:
                break
    return steps.view(len(rates), -1)


def critical_batch_size(steps) -> tuple[float, float]:
    """(least, critical) of the curve s(b) = least * (1 + critical / b) through `steps` {b: s}.

    Least squares of the relative distances, so that every batch counts alike.
    Source: McCandlish et al. 2018, «An empirical model of large-batch training».
    """
    b, s = (torch.tensor(list(each), dtype=torch.float64) for each in zip(*steps.items()))
    parts = torch.stack([1 / s, 1 / (b * s)], dim=1)  # s = least + images / b, divided by s
    least, images = torch.linalg.lstsq(parts, torch.ones_like(s)[:, None]).solution.flatten()
    return float(least), float(images / least)


def _step(net, weights, x, y, rates):
    """A step of SGD for every network of the stack, on x [networks, batch, 64]."""
    scores = vmap(lambda own, rows: functional_call(net, own, (rows,)))(weights, x)
    loss = cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
    gradients = torch.autograd.grad(loss, list(weights.values()))
    with torch.no_grad():
        for weight, gradient in zip(weights.values(), gradients):
            weight -= rates.view(-1, *[1] * (weight.dim() - 1)) * gradient


@torch.no_grad()
def _wrong(net, weights, images):
    """The share of wrong answers of every network of the stack."""
    scores = vmap(lambda own: functional_call(net, own, (images.x,)))(weights)
    return (scores.argmax(dim=-1) != images.y).double().mean(dim=1)
