"""Walk downhill on a loss, on all samples or on a few at a time, and say when the walk blows up.

`gradient_descent` uses every sample in every step, `stochastic_descent` the next few of them;
`largest_stable_rate` is 2 / L, and `sharpest_curvature` measures L before the first step.
"""

from typing import NamedTuple

import torch

from course.learning.samples import check_above_zero, check_not_negative


class Descent(NamedTuple):
    """A run: path [steps + 1, *weights] and losses [steps + 1]; losses[k] was seen at path[k]."""

    path: torch.Tensor
    losses: torch.Tensor


def gradient_descent(loss, start, rate, steps, momentum=0.0):
    """Step down `loss(weights) -> scalar` from `start`: weights <- weights - rate * velocity.

    velocity <- momentum * velocity + gradient, so momentum 0 is plain gradient descent.
    Costs steps + 1 gradients and keeps every weight visited; a run that blows up goes on to inf.
    Source: Polyak 1964, «Some methods of speeding up the convergence of iteration methods».
    """
    _check(rate, steps, momentum)
    weights, velocity = start.detach(), torch.zeros_like(start)
    path, losses = [], []
    for _ in range(steps + 1):
        value, gradient = value_and_gradient(loss, weights)
        path.append(weights)
        losses.append(value)
        velocity = momentum * velocity + gradient
        weights = weights - rate * velocity
    return Descent(torch.stack(path), torch.stack(losses))


def stochastic_descent(loss, samples, start, rate, steps, *, batch, seed, momentum=0.0):
    """The same walk, but each step sees only the next `batch` rows of every tensor in `samples`.

    `loss(weights, *rows) -> scalar` should be a mean over the rows, or the largest stable rate
    depends on `batch`. losses[k] is the loss on batch k alone. Costs batch rows per step.
    Source: Robbins and Monro 1951, «A stochastic approximation method».
    """
    lengths = [len(each) for each in samples]
    if len(set(lengths)) != 1:
        raise ValueError(f"samples must have the same number of rows, not {lengths}")
    rows = batches(lengths[0], batch, seed)

    def loss_of_next_batch(weights):
        chosen = next(rows)
        return loss(weights, *(each[chosen] for each in samples))

    return gradient_descent(loss_of_next_batch, start, rate, steps, momentum)


def batches(samples, batch, seed):
    """Endless row numbers, int64 [batch]: shuffle, deal out all `samples`, shuffle again.

    The last batch of each round is shorter where `batch` does not divide `samples`.
    """
    if not 1 <= batch <= samples:
        raise ValueError(f"a batch of {batch} cannot be drawn from {samples} samples")
    return _deal(samples, batch, torch.Generator().manual_seed(seed))


def sharpest_curvature(loss, at, *, tolerance=1e-6, most_steps=10_000, seed=0):
    """L, the second derivative of `loss` at `at` in the direction where it is largest in size.

    Power iteration: push a direction through the second derivatives until it only grows.
    Costs one gradient of the gradient per step; never needs the matrix of second derivatives.
    Raises ArithmeticError when it has not settled. Source: von Mises and Pollaczek-Geiringer 1929.
    """
    at = at.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(at), at, create_graph=True)
    direction = torch.randn(at.shape, generator=torch.Generator().manual_seed(seed)).to(at)
    tolerance = max(tolerance, 32 * torch.finfo(at.dtype).eps)
    for _ in range(most_steps):
        direction = direction / direction.norm()
        change = _change_of_gradient(gradient, at, direction)
        curvature = float((direction * change).sum())
        if (change - curvature * direction).norm() <= tolerance * abs(curvature):
            return curvature
        direction = change
    raise ArithmeticError(f"no direction has settled after {most_steps} steps, last L {curvature}")


def largest_stable_rate(loss, at, momentum=0.0):
    """2 (1 + momentum) / L: above this rate a walk near a minimum at `at` grows for ever.

    Exact for a quadratic loss, where L is the same everywhere. Raises ValueError where L <= 0.
    Source: Polyak 1964; Nesterov 2004, «Introductory lectures on convex optimization», 1.2.3.
    """
    _check(1.0, 0, momentum)
    curvature = sharpest_curvature(loss, at)
    if curvature <= 0:
        raise ValueError(f"no stable rate: the sharpest curvature must be above 0, not {curvature}")
    return 2 * (1 + momentum) / curvature


def value_and_gradient(loss, weights):
    """`loss(weights)` and its slope in every weight, by autograd: a scalar and [*weights]."""
    weights = weights.detach().requires_grad_()
    value = loss(weights)
    if value.dim() != 0:
        raise ValueError(f"a loss is one number (a tensor without axes), not {list(value.shape)}")
    return value.detach(), torch.autograd.grad(value, weights)[0]


def _deal(samples, batch, generator):
    while True:
        yield from torch.randperm(samples, generator=generator).split(batch)


def _change_of_gradient(gradient, at, direction):
    """How fast the gradient changes when `at` moves along `direction`: a vector like `at`."""
    if not gradient.requires_grad:  # a linear loss: its gradient is the same everywhere
        return torch.zeros_like(direction)
    return torch.autograd.grad(gradient, at, direction, retain_graph=True)[0]


def _check(rate, steps, momentum):
    check_above_zero("the learning rate", rate)
    check_not_negative("the number of steps", steps)
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be at least 0 and below 1, not {momentum}")
