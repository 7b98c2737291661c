"""Stability of elastic averaging, and how noisy its centre is, on a bowl f(x) = curvature x^2 / 2.

A worker's step: x <- x - rate curvature x - alpha (x - c); the centre's: c <- c + alpha times the
sum of (x - c).  Their mean over workers follows a matrix of 2 x 2, and all is said by that.
Source: Zhang, Choromanska & LeCun 2015 (setting, asynchronous bound); the rest is worked out.
"""

import math

import torch


def largest_alpha(rate_curvature: float, workers: int = 1, tau: int = 1) -> float:
    """The alpha from which on a bowl's elastic averaging no longer settles; 0 if it never does.

    `tau` - 1 of tau steps are without the elastic force.  At `tau` 1, with h = `rate_curvature`, it
    is 2 (2 - h) / (2 + workers (2 - h)), so that beta = workers alpha stays below
    2 workers / (workers + 1) however flat the bowl.  Asynchronous workers who take turns are bound
    as a single one is, (4 - 2 h) / (4 - h), however many they are.
    """
    if not 0 <= rate_curvature < 2:
        return 0.0
    shrink = 1 - rate_curvature  # what a step without force makes of x
    before, period = shrink ** (tau - 1), shrink**tau
    slope = 2 * before + workers * (1 + period)
    bound = 2 * (1 + period) / slope if slope > 0 else math.inf
    if before < 0:  # a step across the bowl adds to the force instead of taking from it
        bound = min(bound, (1 - period) / -(before + period * (workers == 1)))
    return bound


def stable(rate_curvature: float, alpha: float, workers: int = 1, tau: int = 1) -> bool:
    """Whether workers and centre settle at the bottom of the bowl, from wherever they start."""
    return 0 < rate_curvature < 2 and 0 < alpha < largest_alpha(rate_curvature, workers, tau)


def mean_system(rate_curvature: float, alpha: float, workers: int) -> torch.Tensor:
    """What a synchronous step does to (mean of the workers, centre): float64 [2, 2]."""
    beta = workers * alpha
    return torch.tensor(
        [[1 - rate_curvature - alpha, alpha], [beta, 1 - beta]], dtype=torch.float64
    )


def centre_deviation(rate_curvature, alpha, workers, noise: float = 1.0) -> float:
    """The standard deviation of the centre in the long run, for gradients with an error of
    standard deviation `noise` each, at curvature 1.

    Raises ValueError where it does not settle.
    """
    if not stable(rate_curvature, alpha, workers):
        bound = largest_alpha(rate_curvature, workers)
        raise ValueError(f"alpha must lie between 0 and {bound:.4g} to settle, not {alpha}")
    step = mean_system(rate_curvature, alpha, workers)
    kept = torch.eye(4, dtype=torch.float64) - torch.kron(step, step)
    added = torch.tensor([(rate_curvature * noise) ** 2 / workers, 0, 0, 0], dtype=torch.float64)
    return math.sqrt(torch.linalg.solve(kept, added)[3])


def centre_losses(rate_curvature, alpha, workers, steps: int, start=1.0, noise=1.0) -> torch.Tensor:
    """What the loss at the centre is expected to be before and after each step [steps + 1], at
    curvature 1, if workers and centre start together at `start`."""
    step, losses = (
        mean_system(rate_curvature, alpha, workers),
        torch.empty(steps + 1, dtype=torch.float64),
    )
    second = torch.full((2, 2), float(start) ** 2, dtype=torch.float64)
    for number in range(steps + 1):
        losses[number] = second[1, 1] / 2
        second = step @ second @ step.T
        second[0, 0] += (rate_curvature * noise) ** 2 / workers
    return losses
