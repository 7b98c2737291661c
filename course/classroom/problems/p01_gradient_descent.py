"""Exercises of notebook 01: a gradient by hand, a largest stable rate, a pair, a bug."""

import torch

from course.classroom.answers import function, number
from course.classroom.comparison import close, like, multiple, refuse
from course.classroom.problems import Exercise, Wrong
from course.learning.images.photographs import photograph


def gradient_by_hand(w, neighbours, pixels):
    """The slope of the mean squared error in every weight: [weights]."""
    residual = pixels - neighbours @ w
    return -2 * (neighbours * residual[:, None]).mean(dim=0)


def gradient_of_lone_weights(w, neighbours, pixels):
    """What comes out where each weight makes a guess of its own."""
    return -2 * (neighbours * (pixels[:, None] - neighbours * w)).mean(dim=0)


LONE = "all weights make one guess together: the residual is pixels - neighbours @ w."


def check_gradient(answer):
    for seed, (rows, weights) in enumerate(((7, 3), (30, 5), (1, 1))):
        case = drawn(rows, weights, seed)
        right = gradient_by_hand(*case)
        got = like(function(answer)(*(each.clone() for each in case)), right)
        times = multiple(got, right)
        if times is None:
            refuse(got, (gradient_of_lone_weights(*case), LONE))
            raise Wrong("multiply each residual by that pixel's own neighbours, then average.")
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
    around = [grey[1:-1, :-2], grey[:-2, 1:-1], grey[1:-1, 2:], grey[2:, 1:-1]]
    neighbours = torch.stack([side.flatten() for side in around], dim=1)
    pixels = grey[1:-1, 1:-1].flatten()
    return limit_of(neighbours, pixels)


def limit_of(neighbours, pixels):
    """2 / L of guessing pixels [n] from neighbours [n, k]: the Hessian is 2 X^T X / n."""
    return float(2 / torch.linalg.eigvalsh(2 * neighbours.T @ neighbours / len(pixels))[-1])


def largest_rate_beyond_the_rim():
    """2 / L where the rim has neighbours, too: from the other side, or of average grey."""
    photo = photograph("flower").double()
    grey = photo - photo.mean()
    around = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    wrapped = torch.stack([grey.roll(way, (0, 1)).flatten() for way in around], dim=1)
    padded = torch.nn.functional.pad(grey, (1, 1, 1, 1))
    framed = [padded[1:-1, :-2], padded[:-2, 1:-1], padded[1:-1, 2:], padded[2:, 1:-1]]
    framed = torch.stack([side.flatten() for side in framed], dim=1)
    return [limit_of(each, grey.flatten()) for each in (wrapped, framed)]


def check_rate(answer):
    rate, right = number(answer), largest_rate_of_four()
    if close(rate, right, 0.001):
        return "twice the neighbours, about twice the curvature, half the rate."
    rim = "a pixel at the rim has no neighbour on one side: leave it out, as [1:-1, 1:-1] does."
    refuse(rate, *((each, rim) for each in largest_rate_beyond_the_rim()), tolerance=0.0005)
    slips = (
        (
            float(2 / bowl_of("flower")[0][1]),
            "this is for two neighbours; each pixel has four here.",
        ),
        (right / 2, "this is 1 / L: safe, but up to twice as much is stable."),
        (right * 2, "this is twice too much: is the 2 left out that the square brings?"),
        (2 / right, "this is L itself; the largest stable rate is 2 / L."),
        (largest_rate_of_four("camera"), "this is for «camera», not for «flower»."),
        (largest_rate_of_four(centred=False), "subtract the photograph's average first."),
        (right, f"{rate:.6g} is close, but not to four figures."),
    )
    for value, sentence in slips:
        refuse(rate, (value, sentence), tolerance=0.01 if value == right else 0.004)
    if 0 < rate < right / 1000:
        raise Wrong("this is far too small: the loss is the mean over the pixels, not the sum.")
    why = "much: the walk would diverge" if rate > right else "little: more is still stable"
    raise Wrong(f"{rate:.4g} is too {why}.")


MOST_STEPS = 14  # that the pair may need, of
GIVEN_STEPS = 150


def fastest_pair():
    """A rate, in units of 2 / L, and a momentum, found by trying all pairs of two lists."""
    bowl = bowl_of("chelsea")
    pairs = [(rate / 10, beta / 20) for rate in range(5, 20) for beta in range(20)]
    return min(pairs, key=lambda pair: steps_of(bowl, *pair))


def bowl_of(name):
    """Curvatures [2] of the loss of a photograph, flat and sharp, its smallest value, and the error
    at (-0.5, 1) along both directions [2]."""
    grey = photograph(name).double() - photograph(name).double().mean()
    neighbours = torch.stack([grey[1:, :-1].flatten(), grey[:-1, 1:].flatten()], dim=1)
    pixels = grey[1:, 1:].flatten()
    curvatures, ways = torch.linalg.eigh(2 * neighbours.T @ neighbours / len(pixels))
    best = torch.linalg.lstsq(neighbours, pixels[:, None]).solution[:, 0]
    least = ((pixels - neighbours @ best) ** 2).mean()
    return curvatures, least, (torch.tensor([-0.5, 1.0], dtype=torch.float64) - best) @ ways


def errors_of(bowl, rate, momentum):
    """Flat and sharp error [steps + 1, 2] of a walk on the bowl, the rate in units of 2 / L."""
    curvatures, _, error = bowl
    velocity, path = 0 * error, [error]
    for _ in range(GIVEN_STEPS):
        velocity = momentum * velocity + curvatures * error
        error = error - rate * 2 / curvatures[1] * velocity
        path.append(error)
    return torch.stack(path)


def steps_of(bowl, rate, momentum):
    """After how many steps the loss stays within 1 % of the smallest one."""
    curvatures, least, _ = bowl
    excess = (curvatures * errors_of(bowl, rate, momentum) ** 2).sum(dim=1) / 2
    return int((~(excess <= 0.01 * least)).nonzero().max()) + 1


def check_pair(answer):
    rate, momentum = pair_of_numbers(answer)
    if rate > 2:
        raise Wrong(f"{rate:.4g} times 2 / L is beyond every limit: give the rate in units of 2/L.")
    if rate >= 1 + momentum:
        raise Wrong(
            f"with momentum {momentum:.3g} rates from {1 + momentum:.3g} · 2/L on diverge; "
            f"yours is {rate:.3g} · 2/L."
        )
    bowl = bowl_of("chelsea")
    steps = steps_of(bowl, rate, momentum)
    if steps <= MOST_STEPS:
        return f"{steps} steps: a smaller condition number wants less momentum."
    many = f"{steps}" if steps <= GIVEN_STEPS else f"more than {GIVEN_STEPS}"
    raise Wrong(f"this pair needs {many} steps: {why_slow(bowl, rate, momentum)}")


def pair_of_numbers(answer):
    """Rate and momentum.  Raises Wrong where they cannot be that."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong(f"two numbers are wanted, the rate and the momentum, not {answer!r:.40}.")
    rate, momentum = map(number, answer)
    if rate <= 0:
        raise Wrong(f"the rate must be above 0, not {rate:.4g}.")
    if not 0 <= momentum < 1:
        raise Wrong(f"the momentum must be at least 0 and below 1, not {momentum:.4g}.")
    return rate, momentum


def why_slow(bowl, rate, momentum):
    """What is left of the error after the steps that are wanted, in a sentence."""
    curvatures, _, start = bowl
    left = errors_of(bowl, rate, momentum)[MOST_STEPS]
    flat, sharp = curvatures * left**2
    if sharp > flat:  # swings shrink by the root of the momentum a step, if it has any part in them
        swings = (1 + momentum - 2 * rate) ** 2 < 4 * momentum
        less = "less momentum" if swings else "a lower rate"
        return f"it still swings across the valley. Try {less}."
    if left[0] * start[0] < 0:
        return "it has overshot along the valley. Try less momentum."
    return "it is still on its way along the valley. Try more momentum, or a higher rate."


def one_step(w, neighbours, pixels, rate):
    """One step of gradient descent on a batch: the weights after it."""
    residual = pixels - neighbours @ w
    gradient = -2 * (neighbours * residual[:, None]).mean(dim=0)
    return w - rate * gradient


def one_step_with_a_bug(w, neighbours, pixels, rate):
    """One step of gradient descent on a batch: the weights after it."""
    residual = pixels - neighbours @ w
    gradient = -2 * (neighbours * residual[:, None]).sum(dim=0)
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
        "write gradient_by_hand(w, neighbours, pixels): the slope of the mean squared error in "
        "every weight.",
        check_gradient,
        (
            "one pixel: (pixel - guess)**2 has the slope -2 * (pixel - guess) * neighbour.",
            "residual = pixels - neighbours @ w; residual[:, None] makes a column of it.",
            "average over the pixels: .mean(dim=0).",
        ),
        gradient_by_hand,
    ),
    Exercise(
        "largest_rate_of_four",
        "put the largest stable rate for guessing «flower» from four neighbours in place of the "
        "dots, to four figures.",
        check_rate,
        (
            "inner pixels are grey[1:-1, 1:-1]; their right neighbours are grey[1:-1, 2:].",
            "stack four columns; the loss is the same; start from torch.zeros(4).",
            "descent.largest_stable_rate(loss_of_four, at=torch.zeros(4))",
        ),
        (largest_rate_of_four, limit_of),
    ),
    Exercise(
        "fastest_pair",
        "put a rate, in units of 2/L, and a momentum in place of the dots: on «chelsea» at most "
        "14 steps are wanted.",
        check_pair,
        (
            "table = with_neighbours(images.photograph('chelsea').double()); the loss is "
            "lambda w: loss(w, *table), its 2/L comes from descent.largest_stable_rate.",
            "the smallest loss is the last one of a long walk, of 1000 steps with momentum 0.5.",
            "two loops: rates from 1 to 1.5, momentum from 0.4 to 0.7, walks of 60 steps.",
        ),
        fastest_pair,
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
