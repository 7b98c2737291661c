"""A warm-up, a schedule, LARS, LARS on ranks, a frozen layer: answers that were really likely."""

import math

import torch

from course.classroom.problems import p13_large_batches as p13
from course.collectives import all_gather, all_reduce
from course.learning.training.large_batch import LARS, warm_up
from tests.classroom.gallery import Gallery, gallery_tests

# The noise scale


def noise_stub(gradients):
    """tr(Sigma) / |G|^2: how many images' noise is as long as the gradient."""
    ...


def noise_with_all_images_known(gradients):
    mean = gradients.mean(dim=0)
    return (gradients - mean).pow(2).sum(dim=1).mean() / (mean @ mean)


def noise_by_distances(gradients):
    mean = gradients.mean(dim=0)
    return float((gradients - mean).norm() ** 2 / len(gradients) / mean.norm() ** 2)


def noise_by_covariance(gradients):
    return torch.cov(gradients.T).trace() / gradients.mean(dim=0).norm() ** 2


def noise_by_mean_length(gradients):
    return gradients.var(dim=0).sum() / gradients.norm(dim=1).square().mean()


def noise_of_a_parameter(gradients):
    return gradients.var(dim=0).mean() / gradients.mean(dim=0).norm() ** 2


def noise_without_the_square(gradients):
    return gradients.var(dim=0).sum() / gradients.mean(dim=0).norm()


def noise_of_deviations(gradients):
    return gradients.std(dim=0).sum() / gradients.mean(dim=0).norm() ** 2


def noise_as_a_length(gradients):
    return gradients.std(dim=0).norm() / gradients.mean(dim=0).norm()


def noise_about_zero(gradients):
    return gradients.norm(dim=1).square().mean() / gradients.mean(dim=0).norm() ** 2


def noise_upside_down(gradients):
    return gradients.mean(dim=0).norm() ** 2 / gradients.var(dim=0).sum()


def noise_by_parameter(gradients):
    return (gradients.var(dim=0) / gradients.mean(dim=0) ** 2).sum()


def noise_of_all_numbers(gradients):
    return gradients.var() / gradients.mean() ** 2


def noise_along_the_wrong_axis(gradients):
    return gradients.var(dim=1).sum() / gradients.mean(dim=1).norm() ** 2


def noise_of_the_mean(gradients):
    return gradients.var(dim=0).sum() / gradients.mean(dim=0).norm() ** 2 / len(gradients)


def noise_beside_the_sum(gradients):
    return gradients.var(dim=0).sum() / gradients.sum(dim=0).norm() ** 2


def noise_for_each(gradients):
    return gradients.var(dim=0) / gradients.mean(dim=0).norm() ** 2


def noise_in_place(gradients):
    length = gradients.mean(dim=0).norm() ** 2
    gradients -= gradients.mean(dim=0)
    return gradients.square().sum() / (len(gradients) - 1) / length


def noise_in_words(gradients):
    return f"{gradients.var(dim=0).sum() / gradients.mean(dim=0).norm() ** 2:.0f} images"


def noise_that_prints(gradients):
    str(gradients.var(dim=0).sum())


# The schedule


def schedule_stub(t, first, peak, warm, steps):
    """The learning rate of step t = 0, 1, ..., steps."""
    ...


def schedule_of_the_package(t, first, peak, warm, steps):
    if warm and t <= warm:
        return warm_up(first, peak, warm)(t)
    return peak * (1 - (t - warm) / (steps - warm)) ** 2


def schedule_as_a_tensor(t, first, peak, warm, steps):
    left = torch.tensor((steps - t) / (steps - warm), dtype=torch.float64)
    return first + t * (peak - first) / warm if t < warm else peak * left**2


def schedule_step_by_step(t, first, peak, warm, steps):
    left = 1.0
    for _ in range(warm, t):
        left -= 1 / (steps - warm)
    return first + (peak - first) * t / warm if t < warm else peak * left**2


def schedule_of_two(t, first, peak, warm, steps):
    return torch.tensor([first, schedule_step_by_step(t, first, peak, warm, steps)])


def schedule_in_words(t, first, peak, warm, steps):
    return "first up, then down"


def schedule_that_stays(t, first, peak, warm, steps):
    return first + (peak - first) * min(t, warm) / warm if warm else peak


def schedule_in_a_straight_line(t, first, peak, warm, steps):
    if t < warm:
        return first + (peak - first) * t / warm
    return peak * (steps - t) / (steps - warm)


def schedule_of_all_steps(t, first, peak, warm, steps):
    if t < warm:
        return first + (peak - first) * t / warm
    return peak * (1 - t / steps) ** 2


def schedule_of_both_at_once(t, first, peak, warm, steps):
    up = first + (peak - first) * t / warm if t < warm else peak
    return up * (1 - t / steps) ** 2


def schedule_from_zero(t, first, peak, warm, steps):
    return peak * t / warm if t < warm else peak * ((steps - t) / (steps - warm)) ** 2


def schedule_a_step_ahead(t, first, peak, warm, steps):
    if t < warm:
        return first + (peak - first) * (t + 1) / warm
    return peak * ((steps - t) / (steps - warm)) ** 2


def schedule_with_a_jump(t, first, peak, warm, steps):
    return first if t < warm else peak * ((steps - t) / (steps - warm)) ** 2


def schedule_by_the_root(t, first, peak, warm, steps):
    if t < warm:
        return first + (peak - first) * t / warm
    return peak * math.sqrt((steps - t) / (steps - warm))


def schedule_that_needs_a_warm_up(t, first, peak, warm, steps):
    up = first + (peak - first) * t / warm
    return up if t < warm else peak * ((steps - t) / (steps - warm)) ** 2


def schedule_that_prints(t, first, peak, warm, steps):
    rate = first + (peak - first) * t / warm if warm else peak
    str(rate)


# A step of LARS


def step_stub(w, gradient, rate, trust, decay):
    """The weights after one step: a tensor like w."""
    ...


def step_of_the_package(w, gradient, rate, trust, decay):
    moving = w.clone().requires_grad_()
    moving.grad = gradient
    LARS([moving], lr=rate, trust=trust, weight_decay=decay, momentum=0.0).step()
    return moving.detach()


def step_by_roots(w, gradient, rate, trust, decay):
    length, slope = w.square().sum().sqrt(), gradient.square().sum().sqrt()
    return w * (1 - rate * trust * length / (slope + decay * length) * decay) - (
        rate * trust * length / (slope + decay * length) * gradient
    )


def step_of_sgd(w, gradient, rate, trust, decay):
    return w - rate * (gradient + decay * w)


def step_without_decay_below(w, gradient, rate, trust, decay):
    return w - rate * trust * w.norm() / gradient.norm() * (gradient + decay * w)


def step_with_decay_below_alone(w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    return w - rate * ratio * gradient


def step_without_decay(w, gradient, rate, trust, decay):
    return w - rate * trust * w.norm() / gradient.norm() * gradient


def step_with_decay_outside(w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    return w * (1 - rate * decay) - rate * ratio * gradient


def step_with_decay_of_its_own(w, gradient, rate, trust, decay):
    return w - rate * (trust * w.norm() / gradient.norm() * gradient + decay * w)


def step_by_the_length_of_the_sum(w, gradient, rate, trust, decay):
    update = gradient + decay * w
    return w - rate * trust * w.norm() / update.norm() * update


def step_upside_down(w, gradient, rate, trust, decay):
    ratio = trust * (gradient.norm() + decay * w.norm()) / w.norm()
    return w - rate * ratio * (gradient + decay * w)


def step_uphill(w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    return w + rate * ratio * (gradient + decay * w)


def step_without_trust(w, gradient, rate, trust, decay):
    return w - rate * w.norm() / (gradient.norm() + decay * w.norm()) * (gradient + decay * w)


def step_with_a_known_trust(w, gradient, rate, trust, decay):
    return p13.lars_step(w, gradient, rate, 0.02, decay)


def step_without_rate(w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    return w - ratio * (gradient + decay * w)


def step_alone(w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    return rate * ratio * (gradient + decay * w)


def step_of_squares(w, gradient, rate, trust, decay):
    length, slope = (w**2).sum(), (gradient**2).sum()
    return w - rate * trust * length / (slope + decay * length) * (gradient + decay * w)


def step_of_sums(w, gradient, rate, trust, decay):
    ratio = trust * w.abs().sum() / (gradient.abs().sum() + decay * w.abs().sum())
    return w - rate * ratio * (gradient + decay * w)


def step_in_place(w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    w -= rate * ratio * (gradient + decay * w)
    return w


def ratio_alone(w, gradient, rate, trust, decay):
    return trust * w.norm() / (gradient.norm() + decay * w.norm())


# LARS on ranks


def ranks_stub(comm, w, gradient, rate, trust, decay):
    """The weights of every rank after one step for the whole batch."""
    ...


def ranks_by_a_sum(comm, w, gradient, rate, trust, decay):
    whole = gradient.clone()
    all_reduce(comm, whole)
    return p13.lars_step(w, whole / comm.size, rate, trust, decay)


def ranks_that_ask_everyone(comm, w, gradient, rate, trust, decay):
    everyones = [torch.empty_like(gradient) for _ in range(comm.size)]
    all_gather(comm, everyones, gradient)
    return p13.lars_step(w, sum(everyones) / comm.size, rate, trust, decay)


def ranks_by_themselves(comm, w, gradient, rate, trust, decay):
    return p13.lars_step(w, gradient, rate, trust, decay)


def ranks_with_their_own_ratio(comm, w, gradient, rate, trust, decay):
    ratio = trust * w.norm() / (gradient.norm() + decay * w.norm())
    all_reduce(comm, gradient, "mean")
    return w - rate * ratio * (gradient + decay * w)


def ranks_with_the_sum(comm, w, gradient, rate, trust, decay):
    all_reduce(comm, gradient)
    return p13.lars_step(w, gradient, rate, trust, decay)


def ranks_with_the_mean_length(comm, w, gradient, rate, trust, decay):
    length = gradient.norm()[None]
    all_reduce(comm, gradient, "mean")
    all_reduce(comm, length, "mean")
    ratio = trust * w.norm() / (length + decay * w.norm())
    return w - rate * ratio * (gradient + decay * w)


def ranks_that_average_steps(comm, w, gradient, rate, trust, decay):
    moved = p13.lars_step(w, gradient, rate, trust, decay)
    all_reduce(comm, moved, "mean")
    return moved


def ranks_with_a_known_trust(comm, w, gradient, rate, trust, decay):
    return p13.lars_on_ranks(comm, w, gradient, rate, 0.02, decay)


def ranks_with_known_numbers(comm, w, gradient, rate, trust, decay):
    return p13.lars_on_ranks(comm, w, gradient, 0.5, 0.02, 0.1)


def ranks_that_add_their_own_first(comm, w, gradient, rate, trust, decay):
    total, came = gradient.clone(), torch.empty_like(gradient)
    for far in range(1, comm.size):
        comm.exchange(gradient, (comm.rank + far) % comm.size, came, (comm.rank - far) % comm.size)
        total += came
    return p13.lars_step(w, total / comm.size, rate, trust, decay)


def ranks_that_measure_first(comm, w, gradient, rate, trust, decay):
    gradient /= gradient.norm()
    all_reduce(comm, gradient, "mean")
    return p13.lars_step(w, gradient, rate, trust, decay)


def ranks_in_place(comm, w, gradient, rate, trust, decay):
    all_reduce(comm, gradient, "mean")
    w.copy_(p13.lars_step(w, gradient, rate, trust, decay))
    return w


def ranks_that_return_nothing(comm, w, gradient, rate, trust, decay):
    all_reduce(comm, gradient, "mean")
    w -= 0.0


def only_rank_0_asks(comm, w, gradient, rate, trust, decay):
    if comm.rank == 0:
        all_reduce(comm, gradient, "mean")
    return p13.lars_step(w, gradient, rate, trust, decay)


# The layer of zeros


def moved(weights, gradients, rate, decay, ratio):
    """All layers after a step, of which each has the ratio `ratio(w, g)`."""
    pairs = zip(weights, gradients)
    return [w - rate * ratio(w, g) * (g + decay * w) for w, g in pairs]


def lars_ratio(w, g, trust, decay):
    return trust * w.norm() / (g.norm() + decay * w.norm() + 1e-9)


def update_by_a_guard(weights, gradients, rate, trust, decay):
    moved = []
    for w, g in zip(weights, gradients):
        step = g + decay * w
        if torch.count_nonzero(w):
            step = step * trust * w.norm() / (g.norm() + decay * w.norm()).clamp(min=1e-12)
        moved.append(w - rate * step)
    return tuple(moved)


def update_of_a_package(weights, gradients, rate, trust, decay):
    return [update_by_a_guard([w], [g], rate, trust, decay)[0] for w, g in zip(weights, gradients)]


def update_with_a_little(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return trust * (w.norm() + 1e-9) / (g.norm() + decay * w.norm() + 1e-9)

    return moved(weights, gradients, rate, decay, ratio)


def update_as_sgd(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return 1.0

    return moved(weights, gradients, rate, decay, ratio)


def update_with_the_trust(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return lars_ratio(w, g, trust, decay) or trust

    return moved(weights, gradients, rate, decay, ratio)


def update_at_any_zero(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return 1.0 if (w == 0).any() else lars_ratio(w, g, trust, decay)

    return moved(weights, gradients, rate, decay, ratio)


def update_at_small_weights(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return 1.0 if w.norm() < 0.01 else lars_ratio(w, g, trust, decay)

    return moved(weights, gradients, rate, decay, ratio)


def update_uphill(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return lars_ratio(w, g, trust, decay) if w.any() else -1.0

    return moved(weights, gradients, rate, decay, ratio)


def update_without_a_floor(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return trust * w.norm() / (g.norm() + decay * w.norm()) if w.any() else 1.0

    return moved(weights, gradients, rate, decay, ratio)


def update_with_a_least_ratio(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return lars_ratio(w, g, trust, decay).clamp(min=0.1)

    return moved(weights, gradients, rate, decay, ratio)


def update_by_signs(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return lars_ratio(w, g, trust, decay) if w.any() else g.abs()

    return moved(weights, gradients, rate, decay, ratio)


def update_in_place(weights, gradients, rate, trust, decay):
    for w, moved in zip(weights, p13.lars_update(weights, gradients, rate, trust, decay)):
        w.copy_(moved)
    return weights


def update_that_stops_everything(weights, gradients, rate, trust, decay):
    for g in gradients:
        g.zero_()
    return p13.lars_update(weights, gradients, rate, trust, decay)


def update_by_the_sum(weights, gradients, rate, trust, decay):
    def ratio(w, g):
        return lars_ratio(w, g, trust, decay) if w.sum().abs() > 1e-12 else 1.0

    return moved(weights, gradients, rate, decay, ratio)


def update_with_a_known_trust(weights, gradients, rate, trust, decay):
    return p13.lars_update(weights, gradients, rate, 0.02, decay)


def update_of_the_first(weights, gradients, rate, trust, decay):
    moved = []
    for w, g in zip(weights, gradients):
        ratio = trust * w.norm() / (g.norm() + decay * w.norm()) if w.any() else 1.0
        moved.append(w - rate * ratio * (g + decay * w))
        return moved


STEPS = 5 * 1_281_167 / 8192

GALLERIES = [
    Gallery(
        "noise_on_ranks",
        ...,
        [64, 128 / 2.0, 3.5 / (1 / 32 - 1 / 256) / 2, torch.tensor(64.2)],
        {
            "this is tr(Sigma); divide it by |G|^2.": 128,
            "and tr(Sigma) has to be divided": 3.5 * 32,
            "2.5 is not |G|^2 yet": 128 / 2.5,
            "two slips: both lengths": 3.5 * 32 / 2.5,
            "all of a rank's gradient for noise": 192,
            "part them first.": 6 / 2.5 * 32,
            "a ratio for 32 images": 3.5 / 2.5,
            "upside down": 1 / 64,
            "this is |G|^2;": 2.0,
            "two equations": 42,
            "a number is wanted": "images",
        },
    ),
    Gallery(
        "noise_scale",
        noise_stub,
        [noise_with_all_images_known, noise_by_distances, noise_by_covariance],
        {
            "the length of the mean.": noise_by_mean_length,
            "not their mean.": noise_of_a_parameter,
            "|G| is squared": noise_without_the_square,
            "these are standard deviations": noise_of_deviations,
            "this is the square root of the noise scale.": noise_as_a_length,
            "one too many.": noise_about_zero,
            "upside down.": noise_upside_down,
            "first both sums, then one division.": noise_by_parameter,
            "every parameter has a mean of its own.": noise_of_all_numbers,
            "images are axis 0.": noise_along_the_wrong_axis,
            "divided by the number of images": noise_of_the_mean,
            "not their sum.": noise_beside_the_sum,
            "the noise scale has shape [], not [7].": noise_for_each,
            "what the function was given has changed.": noise_in_place,
            "the noise scale is made of numbers, and '": noise_in_words,
            "nothing came back": noise_that_prints,
        },
    ),
    Gallery(
        "added_each_step",
        ...,
        [3.1 / STEPS, 3.1 / 782, 3.1 / 780, torch.tensor(0.003964)],
        {
            "the warm-up begins at 0.1: that part of the way is done.": 3.2 / STEPS,
            "this is for the √ rule, not the linear one.": (0.1 * 32**0.5 - 0.1) / STEPS,
            "this is added in each epoch; it has more than one step.": 3.1 / 5,
            "this is the way in one epoch, and the warm-up has five.": 3.1 * 5 / STEPS,
            "these are steps of 256 images, not of 8192.": 3.1 / STEPS / 32,
            "this is all of the way, not one step of it.": 3.1,
            "with 0.004 in each step the rate would get to 3.228.": 0.004,
            "a number is wanted, not 'little'.": "little",
        },
    ),
    Gallery(
        "rate_of_step",
        schedule_stub,
        [
            p13.rate_of_step,
            schedule_of_the_package,
            schedule_as_a_tensor,
            schedule_step_by_step,
        ],
        {
            "after the warm-up the rate stays at its peak.": schedule_that_stays,
            "the way down is a straight line, not a square.": schedule_in_a_straight_line,
            "at step warm the rate is not at its peak": schedule_of_all_steps,
            "one after the other.": schedule_of_both_at_once,
            "the warm-up begins at 0, not at first.": schedule_from_zero,
            "you are a step ahead.": schedule_a_step_ahead,
            "this is a constant warm-up": schedule_with_a_jump,
            "from 0.14 to 2.24: the rate should be 0.9956, yours is 1.829.": schedule_by_the_root,
            "ZeroDivisionError": schedule_that_needs_a_warm_up,
            "nothing came back": schedule_that_prints,
            "a rate has shape [], not [2].": schedule_of_two,
            "a rate is made of numbers, and 'first up": schedule_in_words,
            "a function is wanted, without calling it, not 2.24.": 2.24,
        },
    ),
    Gallery(
        "lars_step",
        step_stub,
        [p13.lars_step, step_of_the_package, step_by_roots],
        {
            "this is SGD: no ratio at all.": step_of_sgd,
            "the decay is missing in the divisor.": step_without_decay_below,
            "the decay is in the divisor alone": step_with_decay_below_alone,
            "the decay is missing, in the step and in the divisor.": step_without_decay,
            "the ratio is right, but it multiplies the gradient alone": step_with_decay_outside,
            "the decay is apart from the ratio": step_with_decay_of_its_own,
            "each length by itself.": step_by_the_length_of_the_sum,
            "the ratio is upside down": step_upside_down,
            "this walks uphill": step_uphill,
            "the trust is missing": step_without_trust,
            "this is another trust than the one that is given.": step_with_a_known_trust,
            "the rate is missing.": step_without_rate,
            "this is the step: return the weights after it.": step_alone,
            "a length is the root of the sum of squares.": step_of_squares,
            "one number for the layer.": step_of_sums,
            "what the function was given has changed.": step_in_place,
            "the layer has shape [4, 3], not [].": ratio_alone,
        },
    ),
    Gallery(
        "lars_on_ranks",
        ranks_stub,
        [p13.lars_on_ranks, ranks_by_a_sum, ranks_that_ask_everyone],
        {
            "rank 0 made a step by its own gradient alone.": ranks_by_themselves,
            "takes the ratio from its own gradient": ranks_with_their_own_ratio,
            "takes the sum of the gradients": ranks_with_the_sum,
            "which is not the length of the mean.": ranks_with_the_mean_length,
            "has the mean of the ranks' own steps": ranks_that_average_steps,
            "rank 0 takes another trust than the one": ranks_with_a_known_trust,
            "rank 0 takes another rate, trust and decay": ranks_with_known_numbers,
            "on 3 ranks, rank 1 differs from rank 0": ranks_that_add_their_own_first,
            "rank 0 ends elsewhere": ranks_that_measure_first,
            "rank 0 has changed w: return a new tensor.": ranks_in_place,
            "nothing came back": ranks_that_return_nothing,
            "a rank waits for one that has finished (on 2 ranks)": only_rank_0_asks,
        },
    ),
    Gallery(
        "lars_update",
        p13.lars_update_frozen,
        [p13.lars_update, update_by_a_guard, update_of_a_package],
        {
            "the layer of zeros is still frozen": update_with_a_little,
            "an ordinary layer steps as with SGD now": update_as_sgd,
            "the layer of zeros makes 0.02 times the step of SGD.": update_with_the_trust,
            "a layer with some weights of 0 steps as with SGD": update_at_any_zero,
            "a layer of small weights steps as with SGD": update_at_small_weights,
            "the layer of zeros makes -1 times the step of SGD.": update_uphill,
            "a gradient of 0: not every weight is finite": update_without_a_floor,
            "an ordinary layer does not step as before": update_with_a_least_ratio,
            "the layer of zeros goes another way": update_by_signs,
            "was changed in place: return new tensors.": update_in_place,
            "the gradient of an ordinary layer has changed: leave": update_that_stops_everything,
            "a layer whose weights add up to 0 steps as with SGD now": update_by_the_sum,
            "an ordinary layer steps by another trust": update_with_a_known_trust,
            "a list of 8 layers is wanted, not 1 of them.": update_of_the_first,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
