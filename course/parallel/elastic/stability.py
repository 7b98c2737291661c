"""Stability of elastic averaging, and how noisy its centre is, on a bowl f(x) = curvature x^2 / 2.

A worker's step: x <- x - rate curvature x - alpha (x - c); the centre's: c <- c + alpha times the
sum of (x - c).  Their mean over workers follows a matrix of 2 x 2, and all is said by that.
Source: Zhang, Choromanska & LeCun 2015 (setting, asynchronous bound); the rest is worked out.
"""

import math

import torch


def largest_alpha(bend: float, workers: int = 1, tau: int = 1) -> float:
    """The alpha from which on a bowl's elastic averaging no longer settles; 0 if it never does.

    `bend` is rate times curvature; `tau` - 1 of tau steps are without the elastic force.  At
    `tau` 1 it is 2 (2 - bend) / (2 + workers (2 - bend)), so that beta = workers alpha stays
    below 2 workers / (workers + 1) however flat the bowl.  Asynchronous workers who take turns
    are bound as a single one is, (4 - 2 bend) / (4 - bend), however many they are.
    """
    if not 0 <= bend < 2:
        return 0.0
    alone, after = (1 - bend) ** (tau - 1), (1 - bend) ** tau
    swing = 2 * alone + workers * (1 + after)
    bound = 2 * (1 + after) / swing if swing > 0 else math.inf
    if alone < 0:  # a step across the bowl adds to the force instead of taking from it
        bound = min(bound, (1 - after) / -(alone + after * (workers == 1)))
    return bound


def stable(bend: float, alpha: float, workers: int = 1, tau: int = 1) -> bool:
    """Whether workers and centre settle at the bottom of the bowl, from wherever they start."""
    return 0 < bend < 2 and 0 < alpha < largest_alpha(bend, workers, tau)


def mean_system(bend: float, alpha: float, workers: int) -> torch.Tensor:
    """What a synchronous step does to (mean of the workers, centre): float64 [2, 2]."""
    beta = workers * alpha
    return torch.tensor([[1 - bend - alpha, alpha], [beta, 1 - beta]], dtype=torch.float64)


def centre_deviation(bend, alpha, workers, noise: float = 1.0) -> float:
    """The standard deviation of the centre in the long run, for gradients with an error of
    standard deviation `noise` each, at curvature 1.

    Raises ValueError where it does not settle.
    """
    if not stable(bend, alpha, workers):
        bound = largest_alpha(bend, workers)
        raise ValueError(f"alpha must lie between 0 and {bound:.4g} to settle, not {alpha}")
    step = mean_system(bend, alpha, workers)
    kept = torch.eye(4, dtype=torch.float64) - torch.kron(step, step)
    added = torch.tensor([(bend * noise) ** 2 / workers, 0, 0, 0], dtype=torch.float64)
    return math.sqrt(torch.linalg.solve(kept, added)[3])


def centre_losses(bend, alpha, workers, steps: int, start=1.0, noise=1.0) -> torch.Tensor:
    """What the loss at the centre is expected to be before and after each step [steps + 1], at
    curvature 1, if workers and centre start together at `start`."""
    step, losses = mean_system(bend, alpha, workers), torch.empty(steps + 1, dtype=torch.float64)
    second = torch.full((2, 2), float(start) ** 2, dtype=torch.float64)
    for number in range(steps + 1):
        losses[number] = second[1, 1] / 2
        second = step @ second @ step.T
        second[0, 0] += (bend * noise) ** 2 / workers
    return losses
