"""A gradient, a rate, a pair and a repaired step: answers that were really likely."""

import math

import torch

from course.classroom.exercises import check
from course.classroom.problems import p01_gradient_descent as p01
from course.learning.images.photographs import photograph
from course.learning.training.descent import gradient_descent, largest_stable_rate
from tests.classroom.gallery import Gallery, gallery_tests

# The gradient


def gradient_stub(w, neighbours, pixels):
    """The slope of the mean squared miss in every weight."""
    ...


def gradient_by_products(w, neighbours, pixels):
    return 2 * neighbours.T @ (neighbours @ w - pixels) / len(pixels)


def gradient_by_autograd(w, neighbours, pixels):
    return torch.func.grad(lambda w: ((pixels - neighbours @ w) ** 2).mean())(w)


def gradient_of_lone_guesses(w, neighbours, pixels):
    slopes = []
    for k in range(len(w)):
        residual = pixels - neighbours[:, k] * w[k]
        slopes.append((-2 * neighbours[:, k] * residual).mean())
    return torch.stack(slopes)


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


# The rate

FLOWER = photograph("flower").double() - photograph("flower").double().mean()


def rate_of(sides, pixels=FLOWER):
    return p01.limit_of(torch.stack([side.flatten() for side in sides], 1), pixels.flatten())


def rate_by_rolling():
    return rate_of([FLOWER.roll(1, 0), FLOWER.roll(-1, 0), FLOWER.roll(1, 1), FLOWER.roll(-1, 1)])


def rate_with_a_frame():
    framed = torch.nn.functional.pad(FLOWER, (1, 1, 1, 1))
    sides = framed[:-2, 1:-1], framed[2:, 1:-1], framed[1:-1, :-2], framed[1:-1, 2:]
    return rate_of(sides)


def rate_of_two():
    return rate_of([FLOWER[1:, :-1], FLOWER[:-1, 1:]], FLOWER[1:, 1:])


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
        [
            p01.gradient_by_hand,
            gradient_by_products,
            gradient_in_loops,
            gradient_in_place,
            gradient_by_autograd,  # as the notebook says
        ],
        {
            "this is the sum over 7 pixels": gradient_summed,
            "every slope has the wrong sign": gradient_uphill,
            "every slope is half of the right one": gradient_of_half,
            "not over the weights too": gradient_over_everything,
            "multiply each residual by that pixel's own neighbours": gradient_of_means,
            "all weights make one guess together": gradient_of_lone_guesses,
            "one number per weight has shape [3], not [7, 3].": gradient_per_pixel,
            "nothing came back: does the function end in return?": gradient_that_only_prints,
            "every slope is 2 times the right one.": gradient_of_twice_the_loss,
            "a function is wanted, without calling it, not 3.": 3,
        },
    ),
    Gallery(
        "largest_rate_of_four",
        ...,
        [RATE, torch.tensor(RATE), round(RATE, 3), round(RATE, 2)],
        {
            "this is 1 / L: safe": RATE / 2,
            "this is twice too much": 2 * RATE,
            "this is L itself": 2 / RATE,
            "this is for «camera», not for «flower».": p01.largest_rate_of_four("camera"),
            "subtract the photograph's average": p01.largest_rate_of_four(centred=False),
            "this is far too small": RATE / 271_164,
            "a pixel at the rim has no neighbour on one side": rate_by_rolling(),
            "this is for two neighbours": rate_of_two(),
            "6.5 is close, but not to four figures.": 6.5,
            "8 is too much: the walk would diverge.": 8,
            "1.5 is too little: more is still stable.": 1.5,
            "a number is wanted, not 'about 6'.": "about 6",
        },
    ),
    Gallery(
        "fastest_pair",
        (..., ...),
        [p01.fastest_pair(), (1.2, 0.55), [1.3, 0.5], (torch.tensor(1.4), 0.5), (1.0, 0.6)],
        {
            "this pair needs 18 steps: it still swings across the valley. Try less": (1.5, 0.6),
            "it still swings across the valley. Try a lower rate.": (1.02, 0.03),
            "this pair needs 43 steps: it is still on its way along the valley.": (0.95, 0),
            "it has overshot along the valley. Try less momentum.": (1.0, 0.85),
            "rates from 1.5 · 2/L on diverge; yours is 1.5 · 2/L.": (1.5, 0.5),
            "give the rate in units of 2/L.": (1.2 * 32.5, 0.55),
            "more than 150 steps": (0.1, 0.0),
            "the momentum must be at least 0 and below 1, not 1.": (1.2, 1),
            "the rate must be above 0, not -1.2.": (-1.2, 0.5),
            "two numbers are wanted, the rate and the momentum, not 1.2.": 1.2,
            "a number is wanted, not 'half'.": (1.2, "half"),
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


def test_the_rate_of_four_is_that_of_power_iteration():
    sides = FLOWER[1:-1, :-2], FLOWER[:-2, 1:-1], FLOWER[1:-1, 2:], FLOWER[2:, 1:-1]
    neighbours = torch.stack([side.flatten() for side in sides], dim=1)
    pixels, start = FLOWER[1:-1, 1:-1].flatten(), torch.zeros(4, dtype=torch.float64)
    measured = largest_stable_rate(lambda w: ((pixels - neighbours @ w) ** 2).mean(), start)
    assert math.isclose(p01.largest_rate_of_four(), measured, rel_tol=1e-5)


def test_a_frame_around_the_photograph_is_found_out():
    verdict = check("largest_rate_of_four", rate_with_a_frame())
    assert verdict.right is False and "leave it out" in verdict.sentence


def test_steps_on_the_bowl_are_those_of_a_walk_on_the_photograph():
    grey = photograph("chelsea").double() - photograph("chelsea").double().mean()
    neighbours = torch.stack([grey[1:, :-1].flatten(), grey[:-1, 1:].flatten()], dim=1)
    few, pixels = neighbours, grey[1:, 1:].flatten()
    start = torch.tensor([-0.5, 1.0], dtype=torch.float64)

    def loss(w):
        return ((pixels - few @ w) ** 2).mean()

    rate = 1.2 * p01.limit_of(few, pixels)
    losses = gradient_descent(loss, start, rate, 30, 0.55).losses
    bowl = p01.bowl_of("chelsea")
    needed = int((losses > 1.01 * bowl[1]).nonzero().max()) + 1
    assert needed == p01.steps_of(bowl, 1.2, 0.55) <= p01.MOST_STEPS
