"""Exercises of notebook 13: the noise scale, and from norms on ranks; a warm-up in numbers, a
schedule, a step of LARS, LARS on ranks, a layer that stays zero."""

import torch

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close, compare, like, multiple, refuse
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_reduce
from course.learning.training.large_batch import linear_scaled, sqrt_scaled, warm_up
from course.learning.training.noise import gradient_noise_scale

RATE, BATCH, EPOCHS, IMAGES = 0.1, 8192, 5, 1_281_167
HOW = ((0.5, 0.02, 0.1), (1.5, 0.003, 0.02), (2.0, 0.5, 0.0))  # rate, trust and decay of layers
RANKS, PART, OF_A_RANK, OF_THE_MEAN = 8, 32, 6.0, 2.5  # squares of lengths


# What a slip gives in the place of `noise_scale`.
NOISES = (
    (
        lambda g: g.var(dim=0).sum() / g.square().sum(dim=1).mean(),
        "this divides by the mean of the squared lengths; |G| is the length of the mean.",
    ),
    (
        lambda g: g.var(dim=0).mean() / g.mean(dim=0).square().sum(),
        "the trace is the sum of the variances, not their mean.",
    ),
    (
        lambda g: g.var(dim=0).sum() / g.mean(dim=0).norm(),
        "|G| is squared: without the square the result has the unit of a gradient.",
    ),
    (
        lambda g: g.std(dim=0).sum() / g.mean(dim=0).square().sum(),
        "these are standard deviations: the trace is the sum of their squares.",
    ),
    (
        lambda g: g.std(dim=0).sum() / g.mean(dim=0).norm(),
        "these are standard deviations: the trace is the sum of their squares.",
    ),
    (
        lambda g: g.std(dim=0).norm() / g.mean(dim=0).norm(),
        "this is the square root of the noise scale.",
    ),
    (
        lambda g: g.square().sum(dim=1).mean() / g.mean(dim=0).square().sum(),
        "the mean has to be taken off before you square: this is one too many.",
    ),
    (
        lambda g: g.mean(dim=0).square().sum() / g.var(dim=0).sum(),
        "this is signal divided by noise: upside down.",
    ),
    (
        lambda g: (g.var(dim=0) / g.mean(dim=0).square()).sum(),
        "first both sums, then one division.",
    ),
    (
        lambda g: g.var() / g.mean() ** 2,
        "this takes all numbers together: every parameter has a mean of its own.",
    ),
    (
        lambda g: g.var(dim=1).sum() / g.mean(dim=1).square().sum(),
        "this goes along the parameters: images are axis 0.",
    ),
    (
        lambda g: g.var(dim=0).sum() / g.mean(dim=0).square().sum() / len(g),
        "this is divided by the number of images: the noise of their mean, not of one image.",
    ),
    (
        lambda g: g.var(dim=0).sum() / g.sum(dim=0).square().sum(),
        "G is the mean of the gradients, not their sum.",
    ),
)


def check_noise(answer):
    cases = [(gradients_of(*shape),) for shape in ((300, 7), (150, 60))]
    compare(
        answer, gradient_noise_scale, cases, NOISES, shape_is="the noise scale", tolerance=0.01,
        otherwise="tr(Sigma) is the sum of the variances of all parameters, |G|^2 the squared "
        "length of the mean gradient.",
    )  # fmt: skip
    return "noise divided by signal: a number of images."


def gradients_of(images, parameters):
    """Gradients [images, parameters] of single images: a mean and noise about it."""
    generator = torch.Generator().manual_seed(parameters)
    drawn = torch.randn(images + 1, parameters, generator=generator, dtype=torch.float64)
    return 0.7 * drawn[0] + 1.2 * drawn[1:]


def check_norms(answer):
    found, whole = number(answer), RANKS * PART
    trace = (OF_A_RANK - OF_THE_MEAN) / (1 / PART - 1 / whole)
    signal = OF_THE_MEAN - trace / whole
    if close(found, trace / signal, 0.01):
        return (
            f"tr(Sigma) is {trace:g} and |G|^2 is {signal:g}, without one gradient of an image. "
            f"A batch of {whole} is beyond that already: more ranks would save few steps."
        )
    refuse(
        found,
        (trace, "this is tr(Sigma); divide it by |G|^2."),
        ((OF_A_RANK - OF_THE_MEAN) * PART,
         "the mean of 256 images has noise, too; and tr(Sigma) has to be divided by |G|^2."),
        (trace / OF_THE_MEAN, "2.5 is not |G|^2 yet: the mean of 256 images has noise, too."),
        ((OF_A_RANK - OF_THE_MEAN) * PART / OF_THE_MEAN,
         "two slips: both lengths have noise in them; write down both equations."),
        (OF_A_RANK * PART, "this takes all of a rank's gradient for noise."),
        (OF_A_RANK / OF_THE_MEAN * PART, "lengths still hold signal and noise: part them first."),
        ((OF_A_RANK - OF_THE_MEAN) / OF_THE_MEAN, "this is a ratio for 32 images, not for one."),
        (signal / trace, "this is signal divided by noise: upside down."),
        (signal, "this is |G|^2; the noise scale is tr(Sigma) divided by it."),
        tolerance=0.01,
    )  # fmt: skip
    raise Wrong("two equations, 6.0 = |G|^2 + tr/32 and 2.5 = |G|^2 + tr/256, give tr and |G|^2.")


def check_added(answer):
    added, steps = number(answer), EPOCHS * IMAGES / BATCH
    way = linear_scaled(RATE, BATCH) - RATE
    if close(added, way / steps, 0.005):
        return f"{steps:.0f} steps from {RATE} to {RATE + way:g}."
    refuse(
        added,
        ((RATE + way) / steps, "the warm-up begins at 0.1: that part of the way is done."),
        ((sqrt_scaled(RATE, BATCH) - RATE) / steps, "this is for the √ rule, not the linear one."),
        (way / EPOCHS, "this is added in each epoch; it has more than one step."),
        (way * BATCH / IMAGES, "this is the way in one epoch, and the warm-up has five."),
        (way * 256 / EPOCHS / IMAGES, "these are steps of 256 images, not of 8192."),
        (way, "this is all of the way, not one step of it."),
        tolerance=0.005,
    )
    raise Wrong(f"with {added:.4g} in each step the rate would get to {RATE + added * steps:.4g}.")


def rate_of_step(t, first, peak, warm, steps):
    """The rate of step t: up from `first` to `peak` at step `warm`, then down to 0 at `steps`."""
    if t < warm:
        return first + (peak - first) * t / warm
    return peak * ((steps - t) / (steps - warm)) ** 2


def risen(t, first, peak, warm):
    """The rate of step t on the way up, and `peak` after it."""
    return warm_up(first, peak, warm)(t) if warm else peak


# What a slip gives in the place of `rate_of_step`, for the same arguments.
SCHEDULES = (
    (
        lambda t, first, peak, warm, steps: risen(t, first, peak, warm),
        "after the warm-up the rate stays at its peak.",
    ),
    (
        lambda t, first, peak, warm, steps: (
            risen(t, first, peak, warm) if t < warm else peak * (steps - t) / (steps - warm)
        ),
        "the way down is a straight line, not a square.",
    ),
    (
        lambda t, first, peak, warm, steps: (
            risen(t, first, peak, warm) if t < warm else peak * (1 - t / steps) ** 2
        ),
        "at step warm the rate is not at its peak: count what is left from there.",
    ),
    (
        lambda t, first, peak, warm, steps: (
            risen(t, first, peak, warm) * ((steps - t) / steps) ** 2
        ),
        "the way down begins with the way up: one after the other.",
    ),
    (
        lambda t, first, peak, warm, steps: (
            peak * t / warm if t < warm else rate_of_step(t, first, peak, warm, steps)
        ),
        "the warm-up begins at 0, not at first.",
    ),
    (
        lambda t, first, peak, warm, steps: (
            risen(t + 1, first, peak, warm)
            if t < warm
            else rate_of_step(t, first, peak, warm, steps)
        ),
        "step 0 should have the rate first, and step warm the peak: you are a step ahead.",
    ),
    (
        lambda t, first, peak, warm, steps: (
            first if t < warm else rate_of_step(t, first, peak, warm, steps)
        ),
        "this is a constant warm-up, with a jump at its end: it should rise in every step.",
    ),
)


def check_schedule(answer):
    long, none, short = (0.14, 2.24, 10, 40), (0.1, 3.0, 0, 25), (0.05, 0.8, 3, 7)
    cases = [(t, *long) for t in (9, 20, 0, 1, 10, 11, 25, 39, 40)]
    cases += [(t, *none) for t in (0, 1, 5, 25)]
    cases += [(t, *short) for t in range(8)]
    for t, first, peak, warm, steps in cases:
        where = f"step {t} of {steps}, warm-up {warm}, from {first} to {peak}"
        right = rate_of_step(t, first, peak, warm, steps)
        yours = like(function(answer)(t, first, peak, warm, steps), right, "a rate").item()
        compare(
            answer, rate_of_step, [(t, first, peak, warm, steps)], SCHEDULES,
            otherwise=f"{where}: the rate should be {right:.4g}, yours is {yours:.4g}.",
            shape_is="a rate", least=1e-9,
        )  # fmt: skip
    return "up by equal amounts, down as a square, and without a warm-up from the peak at once."


def lars_step(w, gradient, rate, trust, decay):
    """The weights after one step of LARS without momentum: a tensor like w."""
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    return w - rate * ratio * (gradient + decay * w)


# What a slip gives in the place of `lars_step`, for the same arguments.
STEPS = (
    (lambda w, g, rate, trust, decay: w - rate * (g + decay * w), "this is SGD: no ratio at all."),
    (
        lambda w, g, rate, trust, decay: w - rate * trust * w.norm() / g.norm() * (g + decay * w),
        "the decay is missing in the divisor.",
    ),
    (
        lambda w, g, rate, trust, decay: (
            w - rate * trust * w.norm() / (g.norm() + decay * w.norm()) * g
        ),
        "the decay is in the divisor alone: no weight is made smaller by it.",
    ),
    (
        lambda w, g, rate, trust, decay: w - rate * trust * w.norm() / g.norm() * g,
        "the decay is missing, in the step and in the divisor.",
    ),
    (
        lambda w, g, rate, trust, decay: (
            w - rate * trust * w.norm() / (g.norm() + decay * w.norm()) * g - rate * decay * w
        ),
        "the ratio is right, but it multiplies the gradient alone: decay * w belongs inside, too.",
    ),
    (
        lambda w, g, rate, trust, decay: (
            w - rate * trust * w.norm() / g.norm() * g - rate * decay * w
        ),
        "the decay is apart from the ratio: LARS has it in the divisor and in the step.",
    ),
    (
        lambda w, g, rate, trust, decay: (
            w - rate * trust * w.norm() / (g + decay * w).norm() * (g + decay * w)
        ),
        "the divisor is |gradient| + decay |w|, each length by itself.",
    ),
    (
        lambda w, g, rate, trust, decay: (
            w - rate * trust * (g.norm() + decay * w.norm()) / w.norm() * (g + decay * w)
        ),
        "the ratio is upside down: long weights may make long steps.",
    ),
    (
        lambda w, g, rate, trust, decay: 2 * w - lars_step(w, g, rate, trust, decay),
        "this walks uphill: subtract the step.",
    ),
    (
        lambda w, g, rate, trust, decay: lars_step(w, g, rate, 1.0, decay),
        "the trust is missing: this step is as long as the weights.",
    ),
    (
        lambda w, g, rate, trust, decay: lars_step(w, g, 1.0, trust, decay),
        "the rate is missing.",
    ),
    (
        lambda w, g, rate, trust, decay: lars_step(w, g, rate, HOW[0][1], decay),
        "this is another trust than the one that is given.",
    ),
    (
        lambda w, g, rate, trust, decay: w - lars_step(w, g, rate, trust, decay),
        "this is the step: return the weights after it.",
    ),
    (
        lambda w, g, rate, trust, decay: (
            w
            - rate * trust * w.square().sum() / (g.square().sum() + decay * w.square().sum())
            * (g + decay * w)
        ),
        "a length is the root of the sum of squares.",
    ),
)  # fmt: skip


def check_lars(answer):
    cases = [(*drawn(shape, seed), *how) for seed, (shape, *how) in enumerate((
        ((4, 3), 0.5, 0.02, 0.3), ((7,), 2.0, 0.1, 0.05),
        ((2, 3, 2), 0.7, 0.004, 0.2), ((3, 3), 1.5, 0.05, 0.0),
    ))]  # fmt: skip
    compare(
        answer, lars_step, cases, STEPS,
        otherwise="the ratio is trust |w| / (|gradient| + decay |w|), one number for the layer.",
        shape_is="the layer",
    )  # fmt: skip
    return "each layer moves by its share, whatever the scale of its gradient."


def drawn(shape, seed):
    """Weights and a gradient of a layer, which lie in unlike directions."""
    generator = torch.Generator().manual_seed(seed)
    w, gradient = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    return 3 * w, gradient


def lars_on_ranks(comm, w, gradient, rate, trust, decay):
    """The weights of every rank after one step of LARS for the whole batch.

    Cost: one all-reduce of the gradient.
    """
    all_reduce(comm, gradient, "mean")
    return lars_step(w, gradient, rate, trust, decay)


def one_step_each(comm, answer, w, gradients, *how):
    """What the answer returns on this rank, and whether `w` is still what it was."""
    mine = w.clone()
    returned = answer(comm, mine, gradients[comm.rank].clone(), *how)
    return returned, torch.equal(mine, w)


def check_on_ranks(answer):
    for ranks, how in enumerate(HOW, 1):
        w, gradients = drawn((4, 3), ranks)[0], parts_of(ranks)
        outcomes, _ = on_ranks(one_step_each, ranks, function(answer), w, gradients, *how)
        right = lars_step(w, gradients.mean(dim=0), *how)
        where = f"on {ranks} rank{'s' * (ranks > 1)},"
        for rank, (returned, kept) in enumerate(outcomes):
            if not kept:
                raise Wrong(f"{where} rank {rank} has changed w: return a new tensor.")
            got = like(returned, right, "the layer")
            if not close(got, right):
                raise Wrong(f"{where} rank {rank} {instead(got, rank, w, gradients, how)}.")
            if not torch.equal(got, like(outcomes[0][0], right)):
                raise Wrong(f"{where} rank {rank} differs from rank 0 in the last bits: take the "
                            "mean that an all-reduce gives to all.")  # fmt: skip
    return "one mean, and then every rank makes the same step by itself."


def parts_of(ranks: int) -> torch.Tensor:
    """The gradients [ranks, 4, 3] of the ranks' parts: of unlike lengths and directions."""
    each = [(1 + 3 * rank) * drawn((4, 3), 10 + rank)[1] for rank in range(ranks)]
    return torch.stack(each)


def instead(got, rank, w, gradients, how) -> str:
    """In words, what a rank has done that ended at `got`."""
    rate, trust, decay = how
    mean = gradients.mean(dim=0)

    def stepped(norm):
        ratio = trust * w.norm() / (norm + decay * w.norm())
        return w - rate * ratio * (mean + decay * w)

    guesses = {
        "made a step by its own gradient alone": lars_step(w, gradients[rank], *how),
        "takes the ratio from its own gradient: it has to be that of the mean": stepped(
            gradients[rank].norm()
        ),
        "takes the sum of the gradients: their parts are means already": lars_step(
            w, gradients.sum(dim=0), *how
        ),
        "takes the mean of the lengths, which is not the length of the mean": stepped(
            gradients.flatten(1).norm(dim=1).mean()
        ),
        "has the mean of the ranks' own steps: first the gradients, then the ratio": torch.stack(
            [lars_step(w, each, *how) for each in gradients]
        ).mean(dim=0),
        "takes another trust than the one that is given": lars_step(
            w, mean, rate, HOW[0][1], decay
        ),
        "takes another rate, trust and decay than those that are given": lars_step(
            w, mean, *HOW[0]
        ),
    }
    like_it = (words for words, guess in guesses.items() if close(got, guess))
    return next(like_it, "ends elsewhere: first the mean gradient, then the step of exercise 4")


def lars_update_frozen(weights, gradients, rate, trust, decay):
    """The weights of all layers after a step of LARS: a list of tensors."""
    moved = []
    for w, g in zip(weights, gradients):
        ratio = trust * w.norm() / (g.norm() + decay * w.norm() + 1e-9)
        moved.append(w - rate * ratio * (g + decay * w))
    return moved


def lars_update(weights, gradients, rate, trust, decay):
    """The weights of all layers after a step of LARS: a list of tensors.

    A layer of zeros has no length to measure a step by: its ratio is 1, as with SGD.
    """
    moved = []
    for w, g in zip(weights, gradients):
        ratio = trust * w.norm() / (g.norm() + decay * w.norm() + 1e-9) if w.norm() > 0 else 1.0
        moved.append(w - rate * ratio * (g + decay * w))
    return moved


def check_frozen(answer):
    (w, g), (small, steep), (deep, low) = drawn((4, 3), 1), drawn((5,), 2), drawn((2, 3, 2), 3)
    zero, holes = torch.zeros_like(w), w.clone()
    holes[0] = 0
    layers = {
        "an ordinary layer": (w, g),
        "a layer with some weights of 0": (holes, g),
        "a layer of small weights": (1e-4 * small, steep),
        "the layer of zeros": (zero, g),
        "a layer of zeros and a gradient of 0": (zero, zero),
        "a layer whose weights add up to 0": (torch.cat([small, -small]), steep.repeat(2)),
        "a second layer of zeros": (torch.zeros_like(deep), low),
        "a layer of a single weight": (small[:1], steep[:1]),
    }
    for how in HOW:
        without_decay = {} if how[-1] else {"a gradient of 0": (w, zero)}
        check_layers(answer, layers | without_decay, how)
    return "zero weights move again, and no other layer has noticed."


def check_layers(answer, layers, how):
    """Refuse an update that is wrong for one of `layers` {what: (weights, gradient)}."""
    weights, gradients = ([pair[k].clone() for pair in layers.values()] for k in (0, 1))
    right = lars_update(*zip(*layers.values()), *how)
    got = function(answer)(list(weights), list(gradients), *how)
    if not isinstance(got, list | tuple) or len(got) != len(layers):
        count = f"{len(got)} of them" if isinstance(got, list | tuple) else type(got).__name__
        raise Wrong(f"a list of {len(layers)} layers is wanted, not {count}.")
    check_kept(layers, weights, gradients)
    for (what, given), moved, wanted in zip(layers.items(), got, right):
        check_layer(what, given, like(moved, wanted, "a layer"), wanted, how)


def check_kept(layers, weights, gradients):
    """Refuse weights and gradients that an answer was given and has changed."""
    for (what, (w, g)), kept, kept_gradient in zip(layers.items(), weights, gradients):
        if not torch.equal(kept, w):
            raise Wrong(f"{what} was changed in place: return new tensors.")
        if not torch.equal(kept_gradient, g):
            raise Wrong(f"the gradient of {what} has changed: leave it as it is.")


def check_layer(what, given, moved, wanted, how):
    """Refuse `moved` weights of one layer that are not `wanted`, and say what they are."""
    (w, g), (rate, _, decay) = given, how
    if close(moved, wanted):
        return
    if not moved.isfinite().all():
        raise Wrong(f"{what}: not every weight is finite after the step.")
    if close(moved, w - rate * (g + decay * w)):
        raise Wrong(f"{what} steps as with SGD now; only layers of zeros should.")
    if close(moved, lars_step(w, g, rate, HOW[0][1], decay)):
        raise Wrong(f"{what} steps by another trust than the one that is given.")
    if not w.any():
        times = multiple(moved, wanted)
        if times is None:
            raise Wrong(f"{what} goes another way than with SGD: by rate * gradient, downhill.")
        if times.abs() < 1e-6:
            raise Wrong(f"{what} is still frozen: a ratio of next to nothing is none.")
        raise Wrong(f"{what} makes {float(times):.3g} times the step of SGD.")
    raise Wrong(f"{what} does not step as before; only layers of zeros should change.")


EXERCISES = [
    Exercise(
        "noise_on_ranks",
        "put in place of the dots the noise scale, in images: 8 ranks with 32 images each have "
        "gradients whose squared length is 6.0 on average; that of their mean is 2.5.",
        check_norms,
        (
            "the mean over b images has the squared length |G|^2 + tr(Sigma) / b on average.",
            "6.0 = |G|^2 + tr / 32, and 2.5 = |G|^2 + tr / 256.",
            "subtract: 3.5 = tr * (1/32 - 1/256).",
        ),
        "tr = 3.5 / (1/32 - 1/256) = 128 and |G|^2 = 2.5 - 128/256 = 2, so 64 images.",
    ),
    Exercise(
        "noise_scale",
        "write noise_scale(gradients): the sum of the variances of all parameters, divided by the "
        "squared length of the mean gradient; gradients are [images, parameters], and stay as they "
        "are.",
        check_noise,
        (
            "gradients.mean(dim=0) is G, with one number for each parameter.",
            "gradients.var(dim=0) has the variance of each parameter; their sum is the trace.",
            "the squared length of G is G.square().sum().",
        ),
        gradient_noise_scale,
    ),
    Exercise(
        "added_each_step",
        "put in place of the dots what a warm-up from 0.1 to the linearly scaled rate of a batch "
        "of 8192 (0.1 is for 256) adds in each step, over 5 epochs of 1,281,167 images.",
        check_added,
        (
            "what is the rate for 8192 images? 32 times the batch.",
            "how many steps are 5 epochs? Each of them reads 8192 images.",
            "(3.2 - 0.1) / (5 * 1_281_167 / 8192)",
        ),
        "(3.2 - 0.1) / (5 * 1_281_167 / 8192), which is 0.003964, in each of 782 steps.",
    ),
    Exercise(
        "rate_of_step",
        "write rate_of_step(t, first, peak, warm, steps): up from first by equal amounts to peak "
        "at step warm, then down to 0 at step `steps`, with the square of the part that is left.",
        check_schedule,
        (
            "two cases: t < warm, and the rest. With warm = 0 the first never happens.",
            "on the way up, t / warm of the way from first to peak is done.",
            "on the way down, (steps - t) / (steps - warm) is left.",
        ),
        rate_of_step,
    ),
    Exercise(
        "lars_step",
        "write lars_step(w, gradient, rate, trust, decay): the weights of a layer after one step "
        "of LARS without momentum, a new tensor; w and gradient stay as they are.",
        check_lars,
        (
            "the length of a tensor is w.norm().",
            "the ratio is trust |w| / (|gradient| + decay |w|).",
            "the step is rate * ratio * (gradient + decay * w); return w minus that.",
        ),
        lars_step,
    ),
    Exercise(
        "lars_on_ranks",
        "write lars_on_ranks(comm, w, gradient, rate, trust, decay): the weights after one step of "
        "LARS for the whole batch, of which each rank has the mean gradient of its part.",
        check_on_ranks,
        (
            "which gradient would one process have, with the whole batch?",
            "all_reduce(comm, gradient, 'mean') comes first; then no more messages are needed.",
            "the rest is lars_step.",
        ),
        (lars_on_ranks, lars_step),
    ),
    Exercise(
        "lars_update",
        "find the bug in lars_update(weights, gradients, rate, trust, decay): a layer of zeros "
        "never moves. Let it step as with SGD, and all others as before.",
        check_frozen,
        (
            "what is the ratio of a layer of zeros, and what does it multiply?",
            "a small number added to |w| makes the layer move by next to nothing.",
            "where w.norm() is 0, the ratio is 1.",
        ),
        lars_update,
        given=lars_update_frozen,
    ),
]
