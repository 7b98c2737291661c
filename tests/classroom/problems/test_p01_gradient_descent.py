"""A gradient, a rate, a walk and a repaired step: answers that were really likely."""

import math

import torch

from course.classroom.problems import p01_gradient_descent as p01
from course.classroom.problems.p01_gradient_descent import largest_rate_of_four
from course.learning.images.photographs import photograph
from tests.classroom.gallery import Gallery, gallery_tests

# The gradient


def gradient_stub(w, neighbours, pixels):
    """The slope of the mean squared miss in every weight."""
    ...


def gradient_by_products(w, neighbours, pixels):
    return 2 * neighbours.T @ (neighbours @ w - pixels) / len(pixels)


def gradient_in_loops(w, neighbours, pixels):
    slopes = [0.0] * len(w)
    for row, pixel in zip(neighbours.tolist(), pixels.tolist(), strict=True):
        miss = pixel - sum(a * b for a, b in zip(row, w.tolist(), strict=True))
        slopes = [s - 2 * miss * x / len(pixels) for s, x in zip(slopes, row, strict=True)]
    return slopes


def gradient_in_place(w, neighbours, pixels):
    pixels -= neighbours @ w
    neighbours *= pixels[:, None]
    return -2 * neighbours.mean(dim=0)


def gradient_summed(w, neighbours, pixels):
    return -2 * neighbours.T @ (pixels - neighbours @ w)


def gradient_uphill(w, neighbours, pixels):
    return 2 * (neighbours * (pixels - neighbours @ w)[:, None]).mean(dim=0)


def gradient_of_half(w, neighbours, pixels):
    return -(neighbours * (pixels - neighbours @ w)[:, None]).mean(dim=0)


def gradient_over_everything(w, neighbours, pixels):
    return -2 * neighbours.T @ (pixels - neighbours @ w) / neighbours.numel()


def gradient_of_means(w, neighbours, pixels):
    return -2 * neighbours.mean(dim=0) * (pixels - neighbours @ w).mean()


def gradient_per_pixel(w, neighbours, pixels):
    return -2 * neighbours * (pixels - neighbours @ w)[:, None]


def gradient_that_only_prints(w, neighbours, pixels):
    gradient = gradient_by_products(w, neighbours, pixels)
    gradient.tolist()


def gradient_of_twice_the_loss(w, neighbours, pixels):
    return 2 * gradient_by_products(w, neighbours, pixels)


# The walk


def walk_stub(gradient, start, rate, beta, steps):
    """The weights after so many steps with momentum beta."""
    raise NotImplementedError


def walk_with_the_rate_inside(gradient, start, rate, beta, steps):
    w, v = start.clone(), torch.zeros_like(start)
    for _ in range(steps):
        v = beta * v - rate * gradient(w)
        w += v
    return w


def walk_by_differences(gradient, start, rate, beta, steps):
    before, w = start, start
    for _ in range(steps):
        before, w = w, w - rate * gradient(w) + beta * (w - before)
    return w


def walk_without_velocity(gradient, start, rate, beta, steps):
    w = start
    for _ in range(steps):
        w = w - rate * gradient(w)
    return w


def walk_of_averages(gradient, start, rate, beta, steps):
    w, v = start, 0
    for _ in range(steps):
        v = beta * v + (1 - beta) * gradient(w)
        w = w - rate * v
    return w


def walk_looking_ahead(gradient, start, rate, beta, steps):
    w, v = start, 0
    for _ in range(steps):
        g = gradient(w)
        v = beta * v + g
        w = w - rate * (g + beta * v)
    return w


def walk_before_the_velocity(gradient, start, rate, beta, steps):
    w, v = start, 0 * start
    for _ in range(steps):
        g = gradient(w)
        w = w - rate * v
        v = beta * v + g
    return w


def walk_that_never_forgets(gradient, start, rate, beta, steps):
    w, v = start, 0
    for _ in range(steps):
        v = v + gradient(w)
        w = w - rate * v
    return w


def walk_with_beta_misplaced(gradient, start, rate, beta, steps):
    w, v = start, 0
    for _ in range(steps):
        v = v + beta * gradient(w)
        w = w - rate * v
    return w


def walk_uphill(gradient, start, rate, beta, steps):
    w, v = start, 0
    for _ in range(steps):
        v = beta * v + gradient(w)
        w = w + rate * v
    return w


def walk_one_too_few(gradient, start, rate, beta, steps):
    return p01.momentum_walk(gradient, start, rate, beta, steps - 1)


def walk_one_too_many(gradient, start, rate, beta, steps):
    return p01.momentum_walk(gradient, start, rate, beta, steps + 1)


def walk_that_moves_the_start(gradient, start, rate, beta, steps):
    v = torch.zeros_like(start)
    for _ in range(steps):
        v = beta * v + gradient(start)
        start -= rate * v
    return start


def walk_that_returns_all(gradient, start, rate, beta, steps):
    path = [start]
    for step in range(1, steps + 1):
        path.append(p01.momentum_walk(gradient, start, rate, beta, step))
    return torch.stack(path)


def walk_that_forgets_at_once(gradient, start, rate, beta, steps):
    w, last = start, 0
    for _ in range(steps):
        g = gradient(w)
        w, last = w - rate * (g + beta * last), g
    return w


# The step


def step_by_products(w, neighbours, pixels, rate):
    return w - 2 * rate / len(pixels) * neighbours.T @ (neighbours @ w - pixels)


def step_by_autograd(w, neighbours, pixels, rate):
    w = w.clone().requires_grad_()
    ((pixels - neighbours @ w) ** 2).mean().backward()
    return w - rate * w.grad


def step_divided_by_16(w, neighbours, pixels, rate):
    return p01.one_step_with_a_bug(w, neighbours, pixels, rate / 16)


def step_of_another_sum(w, neighbours, pixels, rate):
    return w + 2 * rate * neighbours.T @ (pixels - neighbours @ w)


def step_divided_by_the_root(w, neighbours, pixels, rate):
    return p01.one_step_with_a_bug(w, neighbours, pixels, rate / math.sqrt(len(pixels)))


def step_divided_twice(w, neighbours, pixels, rate):
    return p01.one_step(w, neighbours, pixels, rate / len(pixels))


def step_of_one_number(w, neighbours, pixels, rate):
    missed = pixels - neighbours @ w
    return w - rate * (-2 * (neighbours * missed[:, None]).mean())


def step_over_the_weights(w, neighbours, pixels, rate):
    missed = pixels - neighbours @ w
    gradient = -2 * (neighbours * missed[:, None]).mean(dim=1)
    return w - rate * gradient


def step_over_everything(w, neighbours, pixels, rate):
    return p01.one_step(w, neighbours, pixels, rate / len(w))


def step_the_other_way(w, neighbours, pixels, rate):
    return p01.one_step(w, neighbours, pixels, -rate)


RATE = p01.largest_rate_of_four()

GALLERIES = [
    Gallery(
        "gradient_by_hand",
        gradient_stub,
        [p01.gradient_by_hand, gradient_by_products, gradient_in_loops, gradient_in_place],
        {
            "this is the sum over 7 pixels": gradient_summed,
            "every slope has the wrong sign": gradient_uphill,
            "every slope is half of the right one": gradient_of_half,
            "not over the weights too": gradient_over_everything,
            "multiply each pixel's miss by that pixel's own neighbours": gradient_of_means,
            "one number per weight has shape [3], not [7, 3].": gradient_per_pixel,
            "nothing came back: does the function end in return?": gradient_that_only_prints,
            "every slope is 2 times the right one.": gradient_of_twice_the_loss,
            "a function is wanted, without calling it, not 3.": 3,
        },
    ),
    Gallery(
        "largest_rate_of_four",
        ...,
        [RATE, torch.tensor(RATE), round(RATE, 2)],
        {
            "this is 1 / L: safe": RATE / 2,
            "this is twice too much": 2 * RATE,
            "this is L itself": 2 / RATE,
            "this is for «camera», not for «flower».": p01.largest_rate_of_four("camera"),
            "subtract the photograph's average": p01.largest_rate_of_four(centred=False),
            "this is far too small": RATE / 271_164,
            "8 is too much: the walk would blow up.": 8,
            "1.5 is too little: more is still stable.": 1.5,
            "a number is wanted, not 'about 6'.": "about 6",
        },
    ),
    Gallery(
        "momentum_walk",
        walk_stub,
        [p01.momentum_walk, walk_with_the_rate_inside, walk_by_differences],
        {
            "this is plain gradient descent": walk_without_velocity,
            "the gradient is scaled by 1 - beta": walk_of_averages,
            "this looks one step ahead": walk_looking_ahead,
            "w moves by the velocity of the step before": walk_before_the_velocity,
            "the velocity never fades": walk_that_never_forgets,
            "beta fades the old velocity, not the gradient.": walk_with_beta_misplaced,
            "this walks uphill": walk_uphill,
            "one step too few.": walk_one_too_few,
            "one step too many.": walk_one_too_many,
            "the start was changed": walk_that_moves_the_start,
            "one number per weight has shape [2], not [7, 2].": walk_that_returns_all,
            "velocity <- beta * velocity + gradient": walk_that_forgets_at_once,
        },
    ),
    Gallery(
        "one_step",
        p01.one_step_with_a_bug,
        [p01.one_step, step_by_products, step_by_autograd],
        {
            "that repairs one batch size only.": step_divided_by_16,
            "still a sum": step_of_another_sum,
            "divided by the root of the batch": step_divided_by_the_root,
            "divided by the batch twice": step_divided_twice,
            "each weight needs its own slope": step_of_one_number,
            "The size of tensor a (2) must match": step_over_the_weights,
            "the step is 0.5 times rate * gradient": step_over_everything,
            "the step is -1 times rate * gradient": step_the_other_way,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_the_rate_of_four_is_two_over_the_largest_eigenvalue():
    grey = photograph("flower").double() - photograph("flower").double().mean()
    centre, parts = grey[1:-1, 1:-1], (grey[1:-1, :-2], grey[:-2, 1:-1])
    parts += grey[1:-1, 2:], grey[2:, 1:-1]
    second = torch.tensor([[2 * float((a * b).mean()) for a in parts] for b in parts])
    assert centre.shape == parts[3].shape
    largest = float(torch.linalg.eigvalsh(second)[-1])
    assert math.isclose(largest_rate_of_four(), 2 / largest, rel_tol=1e-5)
