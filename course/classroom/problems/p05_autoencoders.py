"""Exercises of notebook 05: numbers to learn, a price's slope, a step back, a length, a bug."""

import torch

from course.classroom.answers import number
from course.classroom.comparison import compare, refuse
from course.classroom.problems import Exercise, Wrong
from course.learning.sparse.autoencoder import divergence

PIXELS, HIDDEN = 12 * 12, 400


def numbers_to_learn():
    """Two tables of weights and two rows of biases."""
    return PIXELS * HIDDEN + HIDDEN + HIDDEN * PIXELS + PIXELS


def check_numbers(answer):
    value, right = number(answer), numbers_to_learn()
    if value == right:
        return "at two ways times 144 per hidden unit, biases hardly count."
    weights = PIXELS * HIDDEN
    slips = (
        (2 * weights, "these are the weights; every hidden unit and every pixel has a bias, too."),
        (weights + HIDDEN, "this is the encoder; the decoder leads back to the pixels."),
        (weights + PIXELS, "this is the decoder; the encoder comes before it."),
        (weights, "this is one table of weights; there are two, and biases."),
        (weights + HIDDEN + PIXELS, "the decoder has weights of its own: they are not shared."),
        (2 * weights + HIDDEN, "the rebuilt pixels have a bias each, too."),
        (2 * weights + PIXELS, "the hidden units have a bias each, too."),
        (2 * (weights + HIDDEN), "the decoder has a bias for each pixel, not for each unit."),
        (2 * 12 * HIDDEN + HIDDEN + 12, "a patch of 12 x 12 has 144 pixels."),
    )
    refuse(value, *slips, tolerance=1e-9)
    why = "many" if value > right else "few"
    raise Wrong(f"{value:,.0f} are too {why}: count both tables of weights and both biases.")


def activity_slope(target, activity):
    """How fast KL(target || activity) grows with the activity: [units]."""
    return (1 - target) / (1 - activity) - target / activity


SLOPE_SLIPS = (
    (lambda t, q: -activity_slope(t, q), "the sign is wrong: being on too often must cost more."),
    (lambda t, q: -t / q, "this is the slope of the first logarithm; the second is missing."),
    (lambda t, q: (1 - t) / (1 - q), "this is the slope of the second logarithm alone."),
    (
        lambda t, q: -t / q - (1 - t) / (1 - q),
        "1 - activity falls when the activity grows: the second term has the other sign.",
    ),
    (lambda t, q: t / q + (1 - t) / (1 - q), "log(target / activity) falls with the activity."),
    (lambda t, q: divergence(t, q), "this is the price itself, not its slope."),
    (
        lambda t, q: torch.log(t / q) - torch.log((1 - t) / (1 - q)),
        "this is the slope in the target; the target is fixed, the activity moves.",
    ),
    (
        lambda t, q: torch.log(q / t) - torch.log((1 - q) / (1 - t)),
        "this is the slope of KL(activity || target): the two have changed places.",
    ),
    (
        lambda t, q: t / q**2 + (1 - t) / (1 - q) ** 2,
        "this is the curvature, the slope of the slope.",
    ),
    (lambda t, q: (1 - t) / (1 - q) - 1 / q, "the first logarithm counts target times."),
    (lambda t, q: 1 / (1 - q) - 1 / q, "the logarithms count target and 1 - target times."),
)


def check_slope(answer):
    cases = [
        (target, torch.tensor(activity, dtype=torch.float64))
        for target, activity in ((0.05, [0.1, 0.2, 0.05]), (0.2, [0.5]), (0.01, [0.05, 0.001]))
    ]
    compare(
        answer,
        activity_slope,
        cases,
        SLOPE_SLIPS,
        otherwise="take the two logarithms one by one: log(1 / q) has the slope -1 / q.",
        shape_is="one slope per unit",
    )
    return "0 at the target, and without bound where a unit is never on."


def hidden_delta(delta3, decoder, codes, target, sparsity):
    """delta2 [count, hidden] from delta3 [count, pixels] and codes [count, hidden]."""
    push = sparsity * activity_slope(target, codes.mean(dim=0))
    return (delta3 @ decoder + push) * codes * (1 - codes)


def stepped_back(*, mean=0, push=lambda push, count: push, slope=lambda a: a * (1 - a), late=False):
    """A wrong step: another mean, another push, another slope, or the push after the slope."""

    def slip(delta3, decoder, codes, target, sparsity):
        q = codes.mean(dim=mean, keepdim=True)
        pushed = push(sparsity * activity_slope(target, q), len(codes))
        blame = delta3 @ decoder
        return blame * slope(codes) + pushed if late else (blame + pushed) * slope(codes)

    return slip


DELTA_SLIPS = (
    (stepped_back(push=lambda push, count: 0), "the push of the price is missing."),
    (stepped_back(slope=lambda a: 1), "the slope of the sigmoid, codes * (1 - codes), is missing."),
    (stepped_back(slope=lambda a: a), "the slope of the sigmoid is codes * (1 - codes)."),
    (stepped_back(slope=lambda a: 1 - a), "the slope of the sigmoid has a second factor, codes."),
    (
        stepped_back(slope=lambda a: torch.sigmoid(a) * (1 - torch.sigmoid(a))),
        "the codes have been through the sigmoid; do not send them through it again.",
    ),
    (
        stepped_back(late=True),
        "the push goes through the sigmoid, too: add it before you take the slope.",
    ),
    (stepped_back(mean=1), "the mean code of a unit is over the patches, not over the units."),
    (stepped_back(mean=(0, 1)), "each unit has a mean code of its own."),
    (stepped_back(push=lambda push, count: -push), "the push has the wrong sign."),
    (
        stepped_back(push=lambda push, count: push / count),
        "delta2 is that of each patch: the mean over the patches is taken later.",
    ),
    (
        lambda d, w, a, t, s: hidden_delta(d, w, a, t, s) / len(a),
        "delta2 is that of each patch: the mean over the patches is taken later.",
    ),
    (
        lambda d, w, a, t, s: d @ w + s * activity_slope(t, a.mean(dim=0)) * a * (1 - a),
        "the blame goes through the sigmoid, too: brackets around blame + push.",
    ),
    (
        lambda d, w, a, t, s: s * (d @ w + activity_slope(t, a.mean(dim=0))) * a * (1 - a),
        "only the push is multiplied by sparsity, not the blame.",
    ),
    (
        lambda d, w, a, t, s: (d @ w + activity_slope(t, a.mean(dim=0))) * a * (1 - a),
        "sparsity times the push: that factor is missing.",
    ),
    (
        lambda d, w, a, t, s: (d @ w + s * divergence(t, a.mean(dim=0))) * a * (1 - a),
        "the push is the slope of KL, not KL itself.",
    ),
    (
        lambda d, w, a, t, s: (d @ w + s * activity_slope(t, a)) * a * (1 - a),
        "KL is taken of a unit's mean code, not of each code.",
    ),
)


def check_delta(answer):
    cases = []
    for seed, (count, pixels, hidden) in enumerate(((7, 5, 3), (2, 3, 4), (1, 2, 1))):
        codes = torch.sigmoid(drawn(count, hidden, seed=seed))
        case = drawn(count, pixels, seed=seed + 3), drawn(pixels, hidden, seed=seed + 6), codes
        cases.append((*case, 0.05 + 0.1 * seed, 3.0 - seed / 2))
    compare(
        answer,
        hidden_delta,
        cases,
        DELTA_SLIPS,
        otherwise="blame through the decoder, plus the push, times the slope of the sigmoid.",
        shape_is="one delta per patch and unit",
    )
    return "the price of activity costs one row of numbers on the way back."


def through_the_length(filters, slopes):
    """Slopes in the filters v [features, pixels], from the slopes in v / |v|, same shape."""
    lengths = filters.norm(dim=1, keepdim=True)
    unit = filters / lengths
    along = (slopes * unit).sum(dim=1, keepdim=True)
    return (slopes - along * unit) / lengths


def projected(*, dim=1, power=1.0, share=1.0, direction=1.0):
    """A wrong way: other lengths, another power of them, more or less taken away."""

    def slip(v, g):
        lengths = v.norm(dim=dim, keepdim=True)
        u = v / lengths**direction
        return (g - share * (g * u).sum(dim=dim, keepdim=True) * u) / lengths**power

    return slip


LENGTH_SLIPS = (
    (lambda v, g: g, "these are the slopes in u; dividing by the length has changed nothing yet."),
    (projected(share=0), "take away the part along each filter: a longer v gives the same u."),
    (projected(power=0), "the part along v is gone; a long v turns less: divide by its length."),
    (projected(dim=0), "these are columns, one pixel of all filters; a filter is a row."),
    (projected(power=-1), "the longer v is, the less a nudge turns it: divide, not multiply."),
    (projected(power=2), "divided by the length twice: once is right."),
    (projected(share=-1), "the part along v has been added; it must go."),
    (projected(direction=0), "take the part along v / |v|, not along v itself."),
    (projected(direction=0.5), "in the part along v, |v| stands below twice: once for each v."),
    (
        lambda v, g: g - (g * v).sum(dim=1, keepdim=True) * v / v.norm(dim=1, keepdim=True) ** 3,
        "divide all that is left by the length: brackets around the difference.",
    ),
    (lambda v, g: v / v.norm(dim=1, keepdim=True), "these are the filters u, not slopes in v."),
    (
        lambda v, g: g / g.norm(dim=1, keepdim=True),
        "not the slopes are made 1 long: the filters are.",
    ),
    (
        lambda v, g: (g - (g * v).sum() / v.norm() ** 2 * v) / v.norm(),
        "every filter has a length of its own; this is the length of all together.",
    ),
    (
        lambda v, g: (g * v).sum(dim=1, keepdim=True) * v / v.norm(dim=1, keepdim=True) ** 3,
        "this is the part along v, which has to go: keep the rest.",
    ),
)


def check_length(answer):
    shapes = ((3, 5), (7, 2), (1, 4))
    cases = [
        (3 * drawn(*shape, seed=i), drawn(*shape, seed=i + 3)) for i, shape in enumerate(shapes)
    ]
    compare(
        answer,
        through_the_length,
        cases,
        LENGTH_SLIPS,
        otherwise="for each row: the slopes without their part along v, divided by its length.",
        shape_is="one slope per weight",
    )
    return "a step along these slopes turns the filters, and does not stretch them."


def price_of_activity(codes, target):
    """The sum over hidden units of KL(target || mean code), for codes [count, hidden]."""
    activity = codes.mean(dim=0)
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return (target * torch.log(target / activity) + off).sum()


def price_of_activity_with_a_bug(codes, target):
    """The sum over hidden units of KL(target || mean code), for codes [count, hidden]."""
    activity = codes.mean(dim=1)
    off = (1 - target) * torch.log((1 - target) / (1 - activity))
    return (target * torch.log(target / activity) + off).sum()


PRICE_SLIPS = (
    (price_of_activity_with_a_bug, "still a mean over the units of a patch, not over the patches."),
    (
        lambda a, t: divergence(t, a.mean()),
        "one mean for all units: a dead unit hides behind one that is always on.",
    ),
    (
        lambda a, t: divergence(t, a).sum() / len(a),
        "this asks every single code to be near the target; only the mean of a unit should be.",
    ),
    (lambda a, t: divergence(t, a).sum(), "take the mean of a unit first, then KL."),
    (lambda a, t: divergence(t, a.mean(dim=0)).mean(), "a sum over the units, not their mean."),
    (lambda a, t: divergence(t, a.mean(dim=0)) @ a.mean(dim=0), "every unit counts alike."),
    (
        lambda a, t: divergence(a.mean(dim=0), torch.tensor(t).to(a)).sum(),
        "KL(target || mean code): the two have changed places.",
    ),
    (
        lambda a, t: divergence(t, a.median(dim=0).values).sum(),
        "the mean code is wanted, not the median: a unit that is seldom on has the median 0.",
    ),
    (
        lambda a, t: divergence(t, a.sum(dim=0) / a.shape[1]).sum(),
        "divide the sum over the patches by their number, not by the number of units.",
    ),
)


def check_price(answer):
    shapes = ((7, 3), (4, 9), (1, 5))
    cases = [(0.1 + 0.8 * torch.sigmoid(drawn(*s, seed=s[0])) / 2, 0.1) for s in shapes]
    compare(
        answer,
        price_of_activity,
        cases,
        PRICE_SLIPS,
        otherwise="the mean over the patches for each unit, KL of each, then the sum.",
        shape_is="the price, one number,",
    )
    return "a unit is judged over all patches: a single patch may switch it on as it likes."


def drawn(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


EXERCISES = [
    Exercise(
        "numbers_to_learn",
        "put how many numbers an auto-encoder 144-400-144 learns in place of the dots.",
        check_numbers,
        (
            "W1 has a weight for every pair of a pixel and a hidden unit. And W2?",
            "every sum has a bias: one for each hidden unit, one for each rebuilt pixel.",
            "for 64-25-64 it is 64 * 25 + 25 + 25 * 64 + 64.",
        ),
        "144 * 400 + 400 + 400 * 144 + 144 = 115,744",
    ),
    Exercise(
        "activity_slope",
        "write activity_slope(target, activity): the slope of KL(target || activity) in the "
        "activity.",
        check_slope,
        (
            "log(target / q) = log(target) - log(q), and the first part does not move.",
            "log(1 - q) has the slope -1 / (1 - q).",
            "-target / q + (1 - target) / (1 - q), with q the activity.",
        ),
        activity_slope,
    ),
    Exercise(
        "hidden_delta",
        "write hidden_delta(delta3, decoder, codes, target, sparsity): what reaches the hidden "
        "units of each patch.",
        check_delta,
        (
            "delta3 @ decoder is the blame, [count, hidden].",
            "the push is one number per unit: sparsity times the slope of KL at its mean code.",
            "(blame + push) * codes * (1 - codes)",
        ),
        (hidden_delta, activity_slope),
    ),
    Exercise(
        "through_the_length",
        "write through_the_length(filters, slopes): the slopes in filters of any length, from "
        "those in the filters of length 1.",
        check_length,
        (
            "filters.norm(dim=1, keepdim=True) is a column of lengths, one for each row.",
            "the part of a slope g along u is (g * u).sum() * u.",
            "(g - its part along u) / |v|, row by row.",
        ),
        through_the_length,
    ),
    Exercise(
        "price_of_activity",
        "find the bug in price_of_activity and repair it.",
        check_price,
        (
            "codes are [count, hidden]. Which axis is gone after .mean(dim=1)?",
            "how often is unit 3 on? To know that, look at all patches.",
        ),
        price_of_activity,
        given=price_of_activity_with_a_bug,
    ),
]
