"""Exercises of notebook 01: a gradient by hand, a largest stable rate, momentum, a bug."""

import torch

from course.classroom.answers import function, number
from course.classroom.comparison import close, like, multiple, refuse
from course.classroom.problems import Exercise, Wrong
from course.learning.images.photographs import photograph
from course.learning.training.descent import gradient_descent, largest_stable_rate


def gradient_by_hand(w, neighbours, pixels):
    """The slope of the mean squared miss in every weight: [weights]."""
    missed = pixels - neighbours @ w
    return -2 * (neighbours * missed[:, None]).mean(dim=0)


def check_gradient(answer):
    for seed, (rows, weights) in enumerate(((7, 3), (30, 5), (1, 1))):
        case = drawn(rows, weights, seed)
        right = gradient_by_hand(*case)
        times = multiple(like(function(answer)(*(each.clone() for each in case)), right), right)
        if times is None:
            raise Wrong("multiply each pixel's miss by that pixel's own neighbours, then average.")
        if not close(times, 1):
            refuse(
                times,
                (-1, "every slope has the wrong sign: the guess is subtracted from the pixel."),
                (0.5, "every slope is half of the right one: the square brings a factor 2."),
                (rows, f"this is the sum over {rows} pixels; the loss is their mean."),
                (1 / weights, "average over the pixels alone, not over the weights too."),
            )
            raise Wrong(f"every slope is {float(times):.3g} times the right one.")
    return "it agrees with autograd for 1, 3 and 5 weights."


def largest_rate_of_four(name="flower", centred=True):
    """2 / L where each pixel is guessed from its neighbours left, above, right, below."""
    photo = photograph(name).double()
    grey = photo - photo.mean() if centred else photo
    sides = [grey[1:-1, :-2], grey[:-2, 1:-1], grey[1:-1, 2:], grey[2:, 1:-1]]
    neighbours = torch.stack([side.flatten() for side in sides], dim=1)
    pixels = grey[1:-1, 1:-1].flatten()
    start = torch.zeros(4, dtype=torch.float64)
    return largest_stable_rate(lambda w: ((pixels - neighbours @ w) ** 2).mean(), at=start)


def check_rate(answer):
    rate, right = number(answer), largest_rate_of_four()
    if close(rate, right, 0.01):
        return "twice the neighbours, about twice the curvature, half the rate."
    slips = (
        (right / 2, "this is 1 / L: safe, but up to twice as much is stable."),
        (right * 2, "this is twice too much: two neighbours for four, or the square's 2 left out."),
        (2 / right, "this is L itself; the largest stable rate is 2 / L."),
        (largest_rate_of_four("camera"), "this is for «camera», not for «flower»."),
        (largest_rate_of_four(centred=False), "subtract the photograph's average first."),
    )
    refuse(rate, *slips, tolerance=0.01)
    if 0 < rate < right / 1000:
        raise Wrong("this is far too small: the loss is the mean over the pixels, not the sum.")
    why = "much: the walk would blow up" if rate > right else "little: more is still stable"
    raise Wrong(f"{rate:.4g} is too {why}.")


def momentum_walk(gradient, start, rate, beta, steps):
    """The weights after `steps` steps with momentum `beta`."""
    w, velocity = start, 0 * start
    for _ in range(steps):
        velocity = beta * velocity + gradient(w)
        w = w - rate * velocity
    return w


# How the new velocity and the move come from the old one, v, and the gradient, g, when one slips.
SLIPS = (
    (lambda v, g, beta: (g, g), "this is plain gradient descent: the velocity is not kept."),
    (
        lambda v, g, beta: (beta * v + (1 - beta) * g,) * 2,
        "here the gradient is scaled by 1 - beta; it counts in full.",
    ),
    (
        lambda v, g, beta: (beta * v + g, beta * (beta * v + g) + g),
        "this looks one step ahead (Nesterov's momentum); here w moves by rate * velocity.",
    ),
    (
        lambda v, g, beta: (beta * v + g, v),
        "w moves by the velocity of the step before: update the velocity first.",
    ),
    (lambda v, g, beta: (v + g,) * 2, "the velocity never fades: multiply the old one by beta."),
    (lambda v, g, beta: (v + beta * g,) * 2, "beta fades the old velocity, not the gradient."),
    (
        lambda v, g, beta: (beta * v + g, -(beta * v + g)),
        "this walks uphill: subtract the velocity.",
    ),
)


def check_momentum(answer):
    bends = torch.tensor([3.0, 0.2], dtype=torch.float64)
    start = torch.tensor([1.0, -2.0], dtype=torch.float64)
    rate, beta, steps = 0.4, 0.75, 6

    def gradient(w):
        return bends * w

    given = start.clone()
    got = like(function(answer)(gradient, given, rate, beta, steps), start)
    if not torch.equal(given, start):
        raise Wrong("the start was changed: w = w - ... makes new weights, w -= ... does not.")
    path = gradient_descent(lambda w: (bends * w**2).sum() / 2, start, rate, steps + 1, beta).path
    if close(got, path[steps]):
        return "every gradient is felt again in all later steps, beta times weaker each time."
    refuse(got, (path[steps - 1], "one step too few."), (path[steps + 1], "one step too many."))
    for slip, sentence in SLIPS:
        refuse(got, (walked(slip, gradient, start, rate, beta, steps), sentence))
    raise Wrong("velocity <- beta * velocity + gradient, then w <- w - rate * velocity.")


def walked(slip, gradient, start, rate, beta, steps):
    """Where a walk ends whose velocity and moves come from `slip`."""
    w, velocity = start, 0 * start
    for _ in range(steps):
        velocity, move = slip(velocity, gradient(w), beta)
        w = w - rate * move
    return w


def one_step(w, neighbours, pixels, rate):
    """One step of gradient descent on a batch: the weights after it."""
    missed = pixels - neighbours @ w
    gradient = -2 * (neighbours * missed[:, None]).mean(dim=0)
    return w - rate * gradient


def one_step_with_a_bug(w, neighbours, pixels, rate):
    """One step of gradient descent on a batch: the weights after it."""
    missed = pixels - neighbours @ w
    gradient = -2 * (neighbours * missed[:, None]).sum(dim=0)
    return w - rate * gradient


def check_step(answer):
    rate, times = 0.1, {}
    for rows in (1, 16, 256):
        w, neighbours, pixels = drawn(rows, 2, seed=rows)
        after = like(function(answer)(w.clone(), neighbours.clone(), pixels.clone(), rate), w)
        times[rows] = multiple((w - after) / rate, gradient_by_hand(w, neighbours, pixels))
    if None in times.values():
        raise Wrong("each weight needs its own slope: average over the pixels, not the weights.")
    if not close(times[1], 1) and close(times[256], 16 * times[16]):
        raise Wrong("divided by one fixed number: that repairs one batch size only.")
    refuse(
        times[256] / times[16],
        (16, "still a sum: with 16 times the batch, the step is 16 times as long."),
        (4, "divided by the root of the batch: the step still grows with the batch."),
        (1 / 16, "divided by the batch twice: the larger the batch, the shorter the step."),
    )
    if not close(times[16], 1):
        raise Wrong(f"the step is {float(times[16]):.3g} times rate * gradient of the mean.")
    return "one rate now fits every batch."


def drawn(rows, weights, seed):
    """Random weights [weights], neighbours [rows, weights] and pixels [rows]."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (weights,), (rows, weights), (rows,)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


EXERCISES = [
    Exercise(
        "gradient_by_hand",
        "write gradient_by_hand(w, neighbours, pixels): the slope of the mean squared miss in "
        "every weight, without autograd.",
        check_gradient,
        (
            "one pixel: (pixel - guess)**2 has the slope -2 * (pixel - guess) * neighbour.",
            "missed = pixels - neighbours @ w is one number per pixel, missed[:, None] a column.",
            "average over the pixels: .mean(dim=0).",
        ),
        gradient_by_hand,
    ),
    Exercise(
        "largest_rate_of_four",
        "put the largest stable rate for guessing «flower» from four neighbours in place of the "
        "dots.",
        check_rate,
        (
            "inner pixels are grey[1:-1, 1:-1]; their right neighbours are grey[1:-1, 2:].",
            "stack four columns; the loss is the same; start from torch.zeros(4).",
            "descent.largest_stable_rate(loss_of_four, at=torch.zeros(4))",
        ),
        largest_rate_of_four,
    ),
    Exercise(
        "momentum_walk",
        "write momentum_walk(gradient, start, rate, beta, steps): the weights after so many steps "
        "with momentum beta.",
        check_momentum,
        (
            "start with a velocity of 0 for every weight.",
            "in each step: first the velocity, then the weights.",
            "velocity = beta * velocity + gradient(w)",
        ),
        momentum_walk,
    ),
    Exercise(
        "one_step",
        "find the bug in one_step and repair it, so that one rate fits every batch size.",
        check_step,
        (
            "how long is the step for a batch of 16, and for 256?",
            "the loss is a mean over the pixels of the batch. What is its gradient?",
        ),
        one_step,
        given=one_step_with_a_bug,
    ),
]
