"""Exercises of notebook 15: how early to ask for the centre, how stiff the spring may be, a mean
that comes late, a step on both ends of the spring, a force that is taken after the step."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from course.classroom.answers import check_filled, function, number, on_ranks
from course.classroom.comparison import close, compare, refuse
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_reduce, cost
from course.parallel.elastic.stability import largest_alpha

WEIGHTS, STEP_S, TAU, LINK = 200e6, 0.15, 10, 10e9  # LINK in bits a second
PULL_STEPS = WEIGHTS * 4 * 8 / LINK / STEP_S  # steps that a transfer of all weights takes
LENGTH = 1000  # elements, where bytes are counted


class Ground(NamedTuple):
    """Where workers walk: the slope there, their rate, their spring, where its centre begins."""

    slope: Callable
    rate: float
    alpha: float = 0.0
    centre: float = 0.0


def steeper(x):
    """The slope of 3 x^2 / 2 - x, a bowl whose bottom is not at 0."""
    return 3 * x - 1


def wavy(x):
    return torch.sin(x)


BOWL = Ground(torch.clone, 0.1, 0.2)  # x^2 / 2, as in the text
STEEPER = Ground(steeper, 0.05, 0.3, 0.5)
WAVY = Ground(wavy, 0.3, 0.15, -1.0)


def placed(starts, shape=(1,)) -> torch.Tensor:
    """Places [ranks, *shape] of workers, all unlike; each begins with its number of `starts`."""
    stretch = 1 + torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    return torch.stack([start * stretch for start in starts])


def on_the_example(ground):
    """[(that ground with something of the text's example, what it is)]."""
    return [(ground._replace(**{name: getattr(BOWL, name)}), name) for name in Ground._fields[:3]]


def check_steps_ahead(answer):
    ahead = number(answer)
    if ahead == 5:
        return f"the centre takes {PULL_STEPS:.2f} steps to come, and the push has the other five."
    refuse(
        ahead,
        (4, "4 steps are 0.6 s: the centre, 0.64 s on its way, would still be awaited."),
        (9, "9 steps are for pull and push; the push is through by then: only the pull counts."),
        (TAU, "tau is enough, but not the least: the centre would be older than it must be."),
        (1, "10 Gb/s are bits: bytes take eight times as long."),
        (2, "a weight in float32 has 4 bytes, not 2 or 1."),
        (3, "a weight in float32 has 4 bytes, not 2 or 1."),
    )
    if ahead > 5:
        raise Wrong(f"{ahead:g} steps are enough, but fewer are as well.")
    if ahead > 0.999 * PULL_STEPS:
        whole = "the centre is asked for at a step: round up to a whole number"
        raise Wrong(f"with {ahead:g} steps nobody would wait, but {whole}.")
    raise Wrong(f"with {ahead:g} steps, {(PULL_STEPS - ahead) * STEP_S:.2g} s are waited for.")


def stiffest_spring(rate_curvature, workers):
    """The alpha from which on elastic averaging no longer settles, at tau 1.

    A pattern (m, c) that becomes (-m, -c):  (2 - rate_curvature - alpha) m + alpha c = 0  and
    workers alpha m + (2 - workers alpha) c = 0, so that
    (2 - rate_curvature - alpha) (2 - workers alpha) = workers alpha^2.
    """
    if not 0 < rate_curvature < 2:
        return 0.0
    return 2 * (2 - rate_curvature) / (2 + workers * (2 - rate_curvature))


# What a slip gives in the place of `stiffest_spring`, for the same arguments.
SCANNED = "near it, but a scan in steps of 0.01 finds two digits: solve the two equations."
BOUNDS = (
    (
        lambda rate_curvature, workers: (
            math.floor(100 * stiffest_spring(rate_curvature, workers)) / 100
        ),
        SCANNED,
    ),
    (
        lambda rate_curvature, workers: (
            math.ceil(100 * stiffest_spring(rate_curvature, workers)) / 100
        ),
        SCANNED,
    ),
    (
        lambda rate_curvature, workers: (
            2 * (2 - rate_curvature) / (2 + workers * (2 - rate_curvature))
        ),
        "a worker alone does not settle from rate times curvature 2 on: then no spring does.",
    ),
    (
        lambda rate_curvature, workers: 2 / workers,
        "this is where beta is 2: the workers move as well.",
    ),
    (
        lambda rate_curvature, workers: largest_alpha(rate_curvature, 1),
        "this is the bound of a single worker: all of them pull at once.",
    ),
    (
        lambda rate_curvature, workers: largest_alpha(rate_curvature, 1) / workers,
        "the bound falls with the workers, but not in proportion.",
    ),
    (
        lambda rate_curvature, workers: workers * largest_alpha(rate_curvature, workers),
        "this is the bound of beta, workers times alpha.",
    ),
    (
        lambda rate_curvature, workers: largest_alpha(0.0, workers),
        "this is the bound on flat ground: rate times curvature is missing.",
    ),
    (
        lambda rate_curvature, workers: 2 - rate_curvature,
        "beyond 2 - rate times curvature one worker, its centre held, overshoots.",
    ),
)


def check_stiffest_spring(answer):
    for rate_curvature, workers in (
        (0.3, 4),
        (1.0, 1),
        (0.5, 16),
        (1.9, 3),
        (0.01, 64),
        (2.5, 2),
        (2.5, 16),
        (2.0, 5),
    ):
        right = stiffest_spring(rate_curvature, workers)
        grows = f"it settles below {right:.4g}, and grows above."
        compare(
            answer, stiffest_spring, [(rate_curvature, workers)], BOUNDS,
            shape_is="a bound", least=1e-9,
            otherwise=f"at rate times curvature {rate_curvature:g} with {workers} workers {grows}",
        )  # fmt: skip
    return "many workers leave each a small alpha, so that beta stays below 2 p / (p + 1)."


def late_training(comm, x, slope, rate, tau, late, steps):
    """Walk `steps` steps from x [any shape] in place; means come `late` steps after snapshots."""
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x += mean - own
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def walks(
    x, tau, late, steps, ground=BOWL, take=lambda x, mean, own: x + (mean - own), slips=()
):  # fmt: skip
    """Places [ranks, ...] after `steps` steps of `late_training` from `x` [ranks, ...].

    `take`(x, mean, own): where the workers are once a mean has come.  `slips`: what is done
    otherwise, in a word each.
    """
    asked = None
    for step in range(1, steps + 1):
        before = "before" in slips and asked and step % tau == late
        x = take(x, *asked) if before else x
        x = x - ground.rate * ground.slope(x)
        if asked and step % tau == late and not before:
            x = take(x, *asked)
        if step % tau == 0:
            asked = x.mean(dim=0), x
    return take(x, *asked) if "end" in slips and asked and steps % tau < late else x


# What a slip makes of `walks`, and where the slip is.
LATE_SLIPS = (
    (
        {"take": lambda x, mean, own: mean.expand_as(x)},
        "they go on from the mean itself: the steps since the snapshot are thrown away.",
    ),
    (
        {"take": lambda x, mean, own: x},
        "no mean has any effect (a snapshot without clone() is x itself, and moves with it).",
    ),
    (
        {"take": lambda x, mean, own: x + (own - mean)},
        "the correction has the wrong sign: it is mean minus snapshot.",
    ),
    (
        {"take": lambda x, mean, own: x + mean},
        "the snapshot is not taken off: the correction is mean minus snapshot.",
    ),
    (
        {"take": lambda x, mean, own: (x + mean) / 2},
        "they go half of the way to the mean: the correction is mean minus snapshot.",
    ),
    ({"slips": ("before",)}, "the mean is applied before the step: take that step first."),
    ({"slips": ("end",)}, "the last mean has not come when the steps are over: leave it out."),
)


def check_late_training(answer):
    for tau, late, steps, ground, start in (
        (3, 2, 13, BOWL, placed([2.0, -1.0, 4.0, 1.0])),
        (2, 1, 3, BOWL, placed([1.0, 3.0])),
        (4, 1, 9, STEEPER, placed([1.0, 0.0, -2.0], (2, 3))),
        (5, 3, 8, WAVY, placed([1.0, 0.2], (4,))),
    ):
        outcomes, trace = on_ranks(
            walked, len(start), function(answer), start, ground, tau, late, steps
        )
        judge_walk(torch.stack(outcomes), start, ground, tau, late, steps)
        once = sum(cost.ring_all_reduce(len(start), start[0].numel(), 8).sent_bytes)
        if sum(trace.sent_bytes) > 2 * once * (steps // tau):
            raise Wrong(f"{steps} steps with tau {tau} have {steps // tau} means: more was sent.")
    return "no step is lost and none counts twice: the workers' mean is where it would be anyway."


def walked(comm, answer, starts, ground, tau, late, steps):
    """Where this rank is after the answer's steps."""
    x = starts[comm.rank].clone()
    answer(comm, x, ground.slope, ground.rate, tau, late, steps)
    return x


def judge_walk(found, start, ground, tau, late, steps):
    """Refuse places [ranks, ...] that are not those of the rule, in words if it is known why."""
    right = walks(start, tau, late, steps, ground)
    where = f"{len(start)} workers, tau {tau}, late {late}, {steps} steps:"
    if close(found, right, 1e-9):
        return
    if close(found, start, 1e-9):
        raise Wrong(f"{where} x has not moved: change it in place, as x -= ... does.")
    slips = late_slips(start, ground, tau, late, steps)
    refuse(found, *((value, f"{where} {words}") for value, words in slips), tolerance=1e-9)
    rank, one, other = furthest(found, right)
    raise Wrong(f"{where} x of rank {rank} is {one:.6g}, it should be {other:.6g}.")


def late_slips(start, ground, tau, late, steps) -> list:
    """[(places, words)] of likely mistakes in `late_training`."""
    slips = [(walks(start, tau, late, steps, ground, **slip), words) for slip, words in LATE_SLIPS]
    slips += [
        (
            walks(start, tau, other, steps, ground),
            f"the mean is applied too {'late' if other > late else 'early'}.",
        )
        for other in range(1, tau)
        if other != late
    ]
    slips += [
        (walks(start, tau, late, steps, other), f"take the {name} that is given.")
        for other, name in on_the_example(ground)
    ]
    return slips


def furthest(found, right) -> tuple:
    """The rank whose tensor is furthest from the right one, and the two numbers there."""
    place = (found - right).abs().argmax().item()
    rank = place // right[0].numel()
    return rank, *(each.flatten()[place].item() for each in (found, right))


def elastic_step(comm, x, c, gradient, rate, alpha):
    """x and c [any shape] after a step and a meeting, in place.  Cost: an all-reduce of x."""
    force = alpha * (x - c)
    x -= rate * gradient + force
    all_reduce(comm, force, "sum")
    c += force


def check_elastic_step(answer):
    for c, starts, slopes, shape, rate, alpha in (
        (0.5, [1.0, 3.0], [-2.0, 1.0], (1,), 0.1, 0.2),  # nothing like anything else, for the words
        (0.0, [1.0, 3.0], [1.0, 3.0], (1,), 0.1, 0.2),
        (0.3, [1.0], [1.0], (2,), 0.25, 0.05),
        (0.7, [2.0, -1.0, 4.0], [2.0, -1.0, 4.0], (2, 3), 0.05, 0.3),
    ):
        x, gradients = placed(starts, shape), placed(slopes, shape)
        judge_step(answer, x, torch.full(shape, c, dtype=torch.float64), gradients, rate, alpha)
    chance = torch.Generator().manual_seed(14)
    x, gradients = torch.randn(2, 4, LENGTH, generator=chance, dtype=torch.float64)
    c = torch.ones(LENGTH, dtype=torch.float64)
    trace = judge_step(answer, x, c, gradients, BOWL.rate, BOWL.alpha)
    least = sum(cost.ring_all_reduce(4, LENGTH, 8).sent_bytes)
    sent = sum(trace.sent_bytes)
    if sent > 1.1 * least:
        times = f"{sent / least:.3g} times as many as one all-reduce of x"
        raise Wrong(f"right, but 4 ranks send {sent:,} bytes, {times}.")
    return "forces by the old places, one all-reduce, and the same centre on all ranks."


def judge_step(answer, x, c, gradients, rate, alpha):
    """Refuse an answer whose step from `x` [ranks, ...] and `c` is another; returns the trace."""
    given = x, c, gradients, rate, alpha
    outcomes, trace = on_ranks(moved, len(x), function(answer), *given)
    force = alpha * (x - c)
    right_x, right_c = x - rate * gradients - force, c + force.sum(dim=0)
    for rank, (own, centre, returned) in enumerate(outcomes):
        if not close(own, right_x[rank], 1e-9):
            check_filled(own, returned, right_x[rank])
            slips = instead_of_x(x[rank], c, gradients[rank], rate, alpha, right_c)
            told(so_many(x), rank, "x", own, right_x[rank], slips)
        if not close(centre, right_c, 1e-9):
            told(so_many(x), rank, "c", centre, right_c, instead_of_c(*given, rank))
    check_bits(f"{so_many(x)},", [centre for _, centre, _ in outcomes])
    return trace


def check_bits(where, centres):
    """Refuse copies of the centre that differ in a bit."""
    for rank, centre in enumerate(centres):
        if not torch.equal(centre, centres[0]):
            raise Wrong(f"{where} c of rank {rank} differs from rank 0's in the last bits: copies "
                        "drift apart unless all get the result of one addition.")  # fmt: skip


def moved(comm, answer, x, c, gradients, rate, alpha):
    """This rank's x and centre after the answer, and what the answer returned."""
    own, centre = x[comm.rank].clone(), c.clone()
    returned = answer(comm, own, centre, gradients[comm.rank].clone(), rate, alpha)
    return own, centre, returned


def so_many(ranks) -> str:
    """On how many of them, in words."""
    return f"on {len(ranks)} rank{'s' * (len(ranks) > 1)}"


def told(where, rank, name, found, right, slips):
    """Raise Wrong: what `name` of `rank` holds, in words where it is known how that came."""
    for words, value in slips.items():
        if close(found, value, 1e-9):
            raise Wrong(f"{where}, {name} of rank {rank} {words}")
    _, one, other = furthest(found[None], right[None])
    raise Wrong(f"{where}, {name} of rank {rank} is {one:.6g}, not {other:.6g}.")


def instead_of_x(x, c, gradient, rate, alpha, after) -> dict:
    """What x may hold and should not, in words, and its value."""
    step, force = rate * gradient, alpha * (x - c)
    return {
        "has not moved: change it in place, as x -= ... does.": x,
        "is pushed away from the centre: the force has the wrong sign.": x - step + force,
        "feels no spring.": x - step,
        "feels the spring alone: where is the gradient?": x - force,
        "is pulled with the force at the new x: take it before the step.": (x - step)
        - alpha * (x - step - c),
        "is pulled to the new centre: take the force before c moves.": x - step
        - alpha * (x - after),
        "is pulled with the sum of all forces: each worker has its own.": x - step - (after - c),
        "walks uphill: the gradient is subtracted.": x + step - force,
        "is pulled with alpha times the rate.": x - step - rate * force,
        "moves by another rate: take the rate that is given.": x - BOWL.rate * gradient - force,
        "is pulled with another alpha: take the alpha that is given.": x - step
        - BOWL.alpha * (x - c),
        "moves by another rate and alpha: take those that are given.": x - BOWL.rate * gradient
        - BOWL.alpha * (x - c),
    }  # fmt: skip


def instead_of_c(x, c, gradients, rate, alpha, rank) -> dict:
    """What c of `rank` may hold and should not, in words, and its value."""
    step, force = rate * gradients, alpha * (x - c)
    return {
        "has not moved: the spring pulls at both ends.": c,
        "feels its own worker's pull alone: the sum of all is wanted.": c + force[rank],
        "moves by the mean of the pulls: their sum is wanted.": c + force.mean(dim=0),
        "moves away from the workers: the force has the wrong sign.": c - force.sum(dim=0),
        "is pulled by the new places: take the forces before the step.": c
        + alpha * (x - step - c).sum(dim=0),
        "is pulled by places after step and spring: take the forces first.": c
        + alpha * (x - step - force - c).sum(dim=0),
        "has become the mean of the workers: it moves by alpha only.": x.mean(dim=0),
    }  # fmt: skip


def force_taken_late(comm, x, c, slope, rate, alpha, tau, steps):
    """Change x and the centre c [any shape] by `steps` steps; they meet in steps 0, tau, ..."""
    for step in range(steps):
        x -= rate * slope(x)
        if step % tau == 0:
            force = alpha * (x - c)
            x -= force
            all_reduce(comm, force, "sum")
            c += force


def elastic_training(comm, x, c, slope, rate, alpha, tau, steps):
    """Change x and the centre c [any shape] by `steps` steps; they meet in steps 0, tau, ...

    The force is taken where the gradient is: at x before the step.
    """
    for step in range(steps):
        meeting = step % tau == 0
        force = alpha * (x - c) if meeting else 0.0
        x -= rate * slope(x) + force
        if meeting:
            all_reduce(comm, force, "sum")
            c += force


def ends(x, tau, steps, ground, pulls=lambda far, step: (far, far.sum(dim=0)), first=0):
    """x and centre [ranks, 2, ...] after `steps` steps on that ground, from `x` [ranks, ...].

    `pulls`(x - c, rate slope): what pulls x and c, before alpha.  The first meeting is in step
    `first`.
    """
    c = torch.full_like(x, ground.centre)
    for t in range(steps):
        alpha, step = ground.alpha * (t >= first and (t - first) % tau == 0), ground.slope(x)
        on_x, on_c = pulls(x - c, ground.rate * step)
        x, c = x - ground.rate * step - alpha * on_x, c + alpha * on_c
    return torch.stack([x, c], dim=1)


# What pulls x and c (see `ends`) on BOWL after a slip, and where the slip is.  The first two checks
# are on BOWL, so every slip is found there.
PULLS = (
    (
        lambda far, step: (far - step, (far - step).sum(dim=0)),
        "the force is taken at the new x (if by old = x: that is a second name, no copy).",
    ),
    (
        lambda far, step: ((1 - BOWL.rate) * far, far.sum(dim=0)),
        "the slope is taken at an x that the force has pulled already.",
    ),
    (
        lambda far, step: (far.sum(dim=0), far.sum(dim=0)),
        "x is pulled with the sum of all forces: each worker has its own.",
    ),
    (
        lambda far, step: (far - BOWL.alpha * far.sum(dim=0), far.sum(dim=0)),
        "x is pulled to the new centre: take the force before c moves.",
    ),
    (
        lambda far, step: (far, far.mean(dim=0)),
        "the centre moves by the mean of the forces: their sum is wanted.",
    ),
    (
        lambda far, step: (far, far),
        "the centre feels its own worker's force alone: the sum of all is wanted.",
    ),
    (
        lambda far, step: (far, (far - step - BOWL.alpha * far).sum(dim=0)),
        "the force on the centre is taken at the new x.",
    ),
)


def check_elastic_training(answer):
    for tau, steps, ground, start in (
        (1, 1, BOWL, placed([1.0, 3.0])),
        (1, 3, BOWL, placed([1.0, 3.0])),
        (3, 7, WAVY, placed([2.0, -1.0, 4.0, 1.0], (3,))),
        (2, 4, STEEPER, placed([5.0], (2, 2))),
    ):
        outcomes, trace = on_ranks(trained, len(start), function(answer), start, ground, tau, steps)
        check_ends(torch.stack(outcomes), start, ground, tau, steps)
        meetings = -(-steps // tau)
        most = meetings * sum(cost.ring_all_reduce(len(start), start[0].numel(), 8).sent_bytes)
        if sum(trace.sent_bytes) > 2 * most:  # other ways to sum few numbers send somewhat more
            raise Wrong(f"{steps} steps with tau {tau} have {meetings} meetings: more was sent.")
    return "0.7, 2.1 and 0.8; then 0.65, 1.63 and 1.04: the published order, on real ranks."


def trained(comm, answer, starts, ground, tau, steps):
    """x and centre [2, ...] of this rank after the answer's steps."""
    x = starts[comm.rank].clone()
    c = torch.full_like(x, ground.centre)
    answer(comm, x, c, ground.slope, ground.rate, ground.alpha, tau, steps)
    return torch.stack([x, c])


def check_ends(found, x, ground, tau, steps):
    """Refuse ends [ranks, 2, ...] that are not those of the rule from `x` [ranks, ...], in words if
    known."""
    where, right = f"{len(x)} workers, tau {tau}, step {steps}:", ends(x, tau, steps, ground)
    if close(found, right, 1e-9):
        return check_bits(where, found[:, 1])
    slips = slips_of_ends(x, ground, tau, steps)
    refuse(found, *((value, f"{where} {words}") for value, words in slips), tolerance=1e-9)
    for rank, both in enumerate(zip(found.flatten(2), right.flatten(2))):
        if not close(*both, 1e-9):
            place = (both[0] - both[1]).abs().amax(dim=0).argmax()
            one, other = ("{:.6g} and {:.6g}".format(*each[:, place]) for each in both)
            raise Wrong(f"{where} x and centre of rank {rank} are {one}, not {other}.")


def slips_of_ends(x, ground, tau, steps) -> list:
    """[(ends, words)] of likely mistakes in `elastic_training`."""
    slips = [(ends(x, tau, steps, ground, pulls), words) for pulls, words in PULLS]
    no_force = "they meet in every step: between meetings there is no force."
    slips += [(ends(x, 1, steps, ground), no_force)]
    missed = "the loop's step 0 has no meeting: the first belongs there."
    slips += [(ends(x, tau, steps, ground, first=first), missed) for first in (tau - 1, tau)]
    slips += [
        (ends(x, tau, steps, other), f"take the {name} that is given.")
        for other, name in on_the_example(ground)
    ]
    return slips


EXERCISES = [
    Exercise(
        "steps_ahead",
        "a network of 200 million weights in float32, steps of 0.15 s, tau 10, a served centre, "
        "10 Gb/s for each client: how many steps ahead must the centre be asked for, at least, so "
        "that no client waits?",
        check_steps_ahead,
        (
            "how many seconds do 800 MB take at 10 Gb/s, which are 1.25 GB/s?",
            "how many steps of 0.15 s are as long as that?",
            "pull and push together have the time of all ten steps; the pull has that of the "
            "steps ahead.",
        ),
        "math.ceil(200e6 * 4 * 8 / 10e9 / 0.15), which is 5: the pull takes 0.64 s, 5 steps are "
        "0.75 s; pull and push take 1.28 s, and ten steps are 1.5 s.",
    ),
    Exercise(
        "stiffest_spring",
        "write stiffest_spring(rate_curvature, workers): the alpha from which on elastic averaging "
        "at tau 1 no longer settles, 0 where the workers by themselves do not.",
        check_stiffest_spring,
        (
            "at the bound there are m and c, not both 0, which become -m and -c: write that down.",
            "two equations in m and c have an answer other than 0 where their determinant is 0.",
            "(2 - rate_curvature - alpha) (2 - p alpha) = p alpha^2; the squares of alpha cancel.",
        ),
        stiffest_spring,
    ),
    Exercise(
        "late_training",
        "write late_training(comm, x, slope, rate, tau, late, steps): local steps, and means that "
        "are applied `late` steps after their snapshots; x changes in place.",
        check_late_training,
        (
            "count steps from 1: after x -= rate * slope(x), is step % tau 0, or late?",
            "at a snapshot keep own = x.clone() and mean = x.clone(), and let all_reduce work on "
            "mean.",
            "where step % tau == late and a mean was asked for: x += mean - own.",
        ),
        late_training,
    ),
    Exercise(
        "elastic_step",
        "write elastic_step(comm, x, c, gradient, rate, alpha): a step of elastic averaging with a "
        "meeting; x and c change in place, and all ranks end with the same c.",
        check_elastic_step,
        (
            "take the force alpha (x - c) before anything moves, and keep it.",
            "x goes down by rate times gradient and by the force.",
            "one all_reduce of the forces gives every rank what c has to go up by.",
        ),
        elastic_step,
    ),
    Exercise(
        "elastic_training",
        "find where elastic_training(comm, x, c, slope, rate, alpha, tau, steps) leaves the "
        "published rule: after a step from 1 and 3, the workers should be at 0.7 and 2.1, and the "
        "centre at 0.8. Make it the published one.",
        check_elastic_training,
        (
            "reckon her step by hand: which x is in the force?",
            "both pulls of the rule, rate g and alpha (x - c), are those at the old x.",
            "take the force before x moves; between meetings there is none.",
        ),
        elastic_training,
        given=force_taken_late,
    ),
]
