"""Steps ahead, a bound, both ends of the spring, a force taken too late: likely answers."""

import torch

from course.classroom.problems import p15_elastic_averaging as p15
from course.collectives import all_gather, all_reduce, broadcast, reduce
from course.parallel.elastic.stability import largest_alpha, mean_system
from tests.classroom.gallery import Gallery, gallery_tests

# The bound


def bound_stub(rate_curvature, workers):
    """The alpha from which on elastic averaging no longer settles, at tau 1."""
    ...


def bound_of_the_package(rate_curvature, workers):
    return largest_alpha(rate_curvature, workers)


def bound_by_halving(rate_curvature, workers):
    low, high = 0.0, 4.0 * (0 < rate_curvature < 2)
    for _ in range(60):
        middle = (low + high) / 2
        grows = torch.linalg.eigvals(mean_system(rate_curvature, middle, workers)).abs().max() > 1
        low, high = (low, middle) if grows else (middle, high)
    return low


def bound_without_a_limit(rate_curvature, workers):
    return 2 * (2 - rate_curvature) / (2 + workers * (2 - rate_curvature))


def bound_that_is_not_negative(rate_curvature, workers):
    return max(0.0, bound_without_a_limit(rate_curvature, workers))


def bound_as_text(rate_curvature, workers):
    return f"below {largest_alpha(rate_curvature, workers)}"


def bound_as_texts(rate_curvature, workers):
    return ["0", f"{largest_alpha(rate_curvature, workers)}"]


def bound_near_enough(rate_curvature, workers):
    return largest_alpha(rate_curvature, workers) + 1e-12


def bound_of_beta_two(rate_curvature, workers):
    return 2 / workers if rate_curvature < 2 else 0.0


def bound_of_one(rate_curvature, workers):
    return (4 - 2 * rate_curvature) / (4 - rate_curvature) if rate_curvature < 2 else 0.0


def bound_of_one_shared(rate_curvature, workers):
    return bound_of_one(rate_curvature, workers) / workers


def bound_as_beta(rate_curvature, workers):
    return workers * largest_alpha(rate_curvature, workers)


def bound_on_flat_ground(rate_curvature, workers):
    return 2 / (1 + workers) if rate_curvature < 2 else 0.0


def bound_of_the_worker(rate_curvature, workers):
    return 2 - rate_curvature


def bound_by_trace(rate_curvature, workers):
    return (4 - rate_curvature) / (1 + workers) if rate_curvature < 2 else 0.0


def bound_by_scanning(rate_curvature, workers):
    alphas = [n / 100 for n in range(200)] if rate_curvature < 2 else [0.0]
    return max(a for a in alphas if a == 0 or a < largest_alpha(rate_curvature, workers))


def bound_by_scanning_on(rate_curvature, workers):
    alphas = [n / 100 for n in range(200)] if rate_curvature < 2 else [0.0]
    return min(a for a in alphas if a >= largest_alpha(rate_curvature, workers))


def bound_as_two_numbers(rate_curvature, workers):
    return [0.0, largest_alpha(rate_curvature, workers)]


def bound_that_is_kept(rate_curvature, workers):
    largest_alpha(rate_curvature, workers)


# Both ends


def step_stub(comm, x, c, gradient, rate, alpha):
    """x and c [any shape] after a step and a meeting, in place."""
    ...


def step_by_copies(comm, x, c, gradient, rate, alpha):
    old, total = x.clone(), alpha * (x - c)
    x.copy_(old - rate * gradient - alpha * (old - c))
    all_reduce(comm, total)
    c.copy_(c + total)


def step_by_sum_of_places(comm, x, c, gradient, rate, alpha):
    total = x.clone()
    x -= rate * gradient + alpha * (x - c)
    all_reduce(comm, total, "sum")
    c += alpha * (total - comm.size * c)


def step_by_a_server(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x -= rate * gradient + force
    reduce(comm, force, "sum", 0)
    if comm.rank == 0:
        c += force
    broadcast(comm, c, 0)


def step_that_returns_x(comm, x, c, gradient, rate, alpha):
    force = alpha * x - alpha * c
    x.sub_(gradient, alpha=rate).sub_(force)
    all_reduce(comm, force)
    c += force
    return x


def step_by_another_alpha(comm, x, c, gradient, rate, alpha):
    p15.elastic_step(comm, x, c, gradient, rate, 0.2)


def step_by_another_rate(comm, x, c, gradient, rate, alpha):
    p15.elastic_step(comm, x, c, gradient, 0.1, alpha)


def step_of_the_text(comm, x, c, gradient, rate, alpha):
    p15.elastic_step(comm, x, c, gradient, 0.1, 0.2)


def step_of_one_number(comm, x, c, gradient, rate, alpha):
    p15.elastic_step(comm, x[:1], c[:1], gradient[:1], rate, alpha)


def sum_in_an_order_of_its_own(comm, x):
    """x becomes the sum over ranks, of which each adds its own first."""
    mine, came = x.clone(), torch.empty_like(x)
    for far in range(1, comm.size):
        comm.exchange(mine, (comm.rank + far) % comm.size, came, (comm.rank - far) % comm.size)
        x += came


def adds_in_an_order_of_its_own(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x -= rate * gradient + force
    sum_in_an_order_of_its_own(comm, force)
    c += force


def pulls_with_the_new_x(comm, x, c, gradient, rate, alpha):
    x -= rate * gradient
    force = alpha * (x - c)
    x -= force
    all_reduce(comm, force, "sum")
    c += force


def pulls_c_with_the_new_x(comm, x, c, gradient, rate, alpha):
    before = c.clone()
    force = alpha * (x - rate * gradient - before)
    x -= rate * gradient + alpha * (x - before)
    all_reduce(comm, force, "sum")
    c += force


def moves_x_first(comm, x, c, gradient, rate, alpha):
    x -= rate * gradient + alpha * (x - c)
    force = alpha * (x - c)
    all_reduce(comm, force, "sum")
    c += force


def moves_c_first(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    all_reduce(comm, force, "sum")
    c += force
    x -= rate * gradient + alpha * (x - c)


def pulls_by_itself(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x -= rate * gradient + force
    c += force


def pulls_by_the_mean(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x -= rate * gradient + force
    all_reduce(comm, force, "mean")
    c += force


def pulls_on_one_end(comm, x, c, gradient, rate, alpha):
    x -= rate * gradient + alpha * (x - c)


def pulls_on_the_other_end(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x -= rate * gradient
    all_reduce(comm, force, "sum")
    c += force


def pushes_c_away(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x -= rate * gradient + force
    all_reduce(comm, force, "sum")
    c -= force


def pushes_x_away(comm, x, c, gradient, rate, alpha):
    x -= rate * gradient - alpha * (x - c)


def walks_uphill(comm, x, c, gradient, rate, alpha):
    x += rate * gradient - alpha * (x - c)


def forgets_the_gradient(comm, x, c, gradient, rate, alpha):
    x -= alpha * (x - c)


def multiplies_by_the_rate(comm, x, c, gradient, rate, alpha):
    x -= rate * (gradient + alpha * (x - c))


def takes_the_mean(comm, x, c, gradient, rate, alpha):
    c_before = c.clone()
    c.copy_(x)
    all_reduce(comm, c, "mean")
    x -= rate * gradient + alpha * (x - c_before)


def gives_names_to_new_tensors(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    x = x - rate * gradient - force
    all_reduce(comm, force, "sum")
    c = c + force


def returns_the_new_x(comm, x, c, gradient, rate, alpha):
    return x - rate * gradient - alpha * (x - c)


def sends_all_to_all(comm, x, c, gradient, rate, alpha):
    parts = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, parts, alpha * (x - c))
    x -= rate * gradient + alpha * (x - c)
    c += sum(parts)


def pulls_x_by_the_sum(comm, x, c, gradient, rate, alpha):
    force = alpha * (x - c)
    all_reduce(comm, force, "sum")
    x -= rate * gradient + force
    c += force


def halves_the_pull(comm, x, c, gradient, rate, alpha):
    x -= rate * gradient + alpha / 2 * (x - c)


def only_rank_0_goes(comm, x, c, gradient, rate, alpha):
    if comm.rank == 0:
        p15.elastic_step(comm, x, c, gradient, rate, alpha)


# The force taken late


def with_the_force_in_hand(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        g = slope(x)
        if step % tau == 0:
            force = alpha * (x - c)
            x -= force
            all_reduce(comm, force, "sum")
            c += force
        x -= rate * g


def with_a_clone(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        old = x.clone()
        x -= rate * slope(x)
        if step % tau == 0:
            force = alpha * (old - c)
            x -= force
            all_reduce(comm, force, "sum")
            c += force


def late_still(comm, x, c, slope, rate, alpha, tau, steps):
    p15.force_taken_late(comm, x, c, slope, rate, alpha, tau, steps)


def by_a_second_name(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        old = x
        x -= rate * slope(x)
        if step % tau == 0:
            force = alpha * (old - c)
            x -= force
            all_reduce(comm, force, "sum")
            c += force


def slope_taken_late(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        if step % tau == 0:
            force = alpha * (x - c)
            x -= force
            all_reduce(comm, force, "sum")
            c += force
        x -= rate * slope(x)


def meets_at_the_ends(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(1, steps + 1):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step % tau == 0:
            x -= force
            all_reduce(comm, force, "sum")
            c += force


def meets_first_at_tau(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step and step % tau == 0:
            x -= force
            all_reduce(comm, force, "sum")
            c += force


def meets_in_every_step(comm, x, c, slope, rate, alpha, tau, steps):
    elastic_everywhere(comm, x, c, slope, rate, alpha, 1, steps)


def elastic_everywhere(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c) * (step % tau == 0)
        x -= rate * slope(x) + force
        all_reduce(comm, force, "sum")
        c += force


def late_on_the_centre_only(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        meeting = step % tau == 0
        x -= rate * slope(x) + (alpha * (x - c) if meeting else 0.0)
        if meeting:
            force = alpha * (x - c)
            all_reduce(comm, force, "sum")
            c += force


def summed_on_x(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        g = slope(x)
        if step % tau == 0:
            all_reduce(comm, force, "sum")
            c += force
            x -= force
        x -= rate * g


def mean_on_c(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step % tau == 0:
            x -= force
            all_reduce(comm, force, "mean")
            c += force


def own_on_c(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step % tau == 0:
            x -= force
            c += force


def to_the_new_centre(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force, g = alpha * (x - c), slope(x)
        if step % tau == 0:
            all_reduce(comm, force, "sum")
            c += force
            x -= alpha * (x - c)
        x -= rate * g


def half_on_x(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step % tau == 0:
            x -= force / 2
            all_reduce(comm, force, "sum")
            c += force


def alpha_of_the_text(comm, x, c, slope, rate, alpha, tau, steps):
    p15.elastic_training(comm, x, c, slope, rate, 0.2, tau, steps)


def rate_of_the_text(comm, x, c, slope, rate, alpha, tau, steps):
    p15.elastic_training(comm, x, c, slope, 0.1, alpha, tau, steps)


def slope_of_the_text(comm, x, c, slope, rate, alpha, tau, steps):
    p15.elastic_training(comm, x, c, torch.clone, rate, alpha, tau, steps)


def begins_at_zero(comm, x, c, slope, rate, alpha, tau, steps):
    c.zero_()
    p15.elastic_training(comm, x, c, slope, rate, alpha, tau, steps)


def centres_drift_apart(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step % tau == 0:
            x -= force
            sum_in_an_order_of_its_own(comm, force)
            c += force


def waits_for_rank_0(comm, x, c, slope, rate, alpha, tau, steps):
    for step in range(steps):
        force = alpha * (x - c)
        x -= rate * slope(x)
        if step % tau == 0 and comm.rank == 0:
            all_reduce(comm, force, "sum")


# A late mean


def late_stub(comm, x, slope, rate, tau, late, steps):
    """Walk `steps` steps from x [any shape] in place; means come `late` steps after snapshots."""
    ...


def late_from_the_mean(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x.copy_(mean)
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_without_effect(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x += 0 * mean
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_with_the_wrong_sign(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x -= mean - own
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_without_the_snapshot(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x += mean
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_at_the_new_place(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x += mean - x
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_half_way(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x += (mean - x) / 2
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_before_the_step(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        if own is not None and step % tau == late:
            x += mean - own
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            pass
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_at_the_end_too(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and step % tau == late:
            x += mean - own
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")
    if steps % tau < late and own is not None:
        x += mean - own


def late_a_step_early(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if own is not None and (step + 1) % tau == late:
            x += mean - own
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_by_another_name(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x = x - rate * slope(x)
        if own is not None and step % tau == late:
            x += mean - own
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_at_twice_the_rate(comm, x, slope, rate, tau, late, steps):
    own = mean = None
    for step in range(1, steps + 1):
        x -= 2 * rate * slope(x)
        if own is not None and step % tau == late:
            x += mean - own
        if step % tau == 0:
            own, mean = x.clone(), x.clone()
            all_reduce(comm, mean, "mean")


def late_at_the_rate_of_the_text(comm, x, slope, rate, tau, late, steps):
    p15.late_training(comm, x, slope, 0.1, tau, late, steps)


def late_on_the_bowl_alone(comm, x, slope, rate, tau, late, steps):
    p15.late_training(comm, x, lambda x: x, rate, tau, late, steps)


def late_for_one_number(comm, x, slope, rate, tau, late, steps):
    place = torch.tensor([x.flatten()[0].item()], dtype=x.dtype)
    p15.late_training(comm, place, slope, rate, tau, late, steps)
    x.fill_(place.item())


def late_by_background(comm, x, slope, rate, tau, late, steps):
    asked = own = mean = None
    for step in range(steps):
        x.sub_(slope(x), alpha=rate)
        if asked and (step + 1) % tau == late:
            asked.wait()
            x.add_(mean).sub_(own)
            asked = None
        if (step + 1) % tau == 0:
            own, mean = x.clone(), x.clone()
            asked = comm.submit(all_reduce, mean, "mean")


def late_on_rank_0_alone(comm, x, slope, rate, tau, late, steps):
    for step in range(1, steps + 1):
        x -= rate * slope(x)
        if step % tau == 0 and comm.rank == 0:
            all_reduce(comm, x.clone(), "mean")


def late_with_many_means(comm, x, slope, rate, tau, late, steps):
    p15.late_training(comm, x, slope, rate, tau, late, steps)
    for _ in range(9):
        all_reduce(comm, x.clone(), "mean")


GALLERIES = [
    Gallery(
        "steps_ahead",
        ...,
        [5, 5.0, torch.tensor(5)],
        {
            "4 steps are 0.6 s: the centre, 0.64 s on its way": 4,
            "with 4.26667 steps nobody would wait, but the centre is asked": 0.64 / 0.15,
            "with 4.5 steps nobody would wait, but the centre is asked": 4.5,
            "the push is through by then: only the pull counts.": 9,
            "tau is enough, but not the least": 10,
            "10 Gb/s are bits: bytes take eight times as long.": 1,
            "a weight in float32 has 4 bytes": 2,
            "6 steps are enough, but fewer are as well.": 6,
            "with 0 steps, 0.64 s are waited for.": 0,
            "a number is wanted, not 'early'.": "early",
        },
    ),
    Gallery(
        "stiffest_spring",
        bound_stub,
        [bound_of_the_package, bound_by_halving, bound_near_enough],
        {
            "from rate times curvature 2 on: then no spring does.": bound_without_a_limit,
            "this is where beta is 2: the workers move as well.": bound_of_beta_two,
            "this is the bound of a single worker": bound_of_one,
            "the bound falls with the workers, but not in proportion.": bound_of_one_shared,
            "this is the bound of beta, workers times alpha.": bound_as_beta,
            "this is the bound on flat ground": bound_on_flat_ground,
            "beyond 2 - rate times curvature one worker, its centre held,": bound_of_the_worker,
            "at rate times curvature 0.3 with 4 workers it settles below 0.3864": bound_by_trace,
            "a scan in steps of 0.01 finds two digits": bound_by_scanning,
            "near it, but a scan in steps of 0.01": bound_by_scanning_on,
            "a bound has shape [], not [2].": bound_as_two_numbers,
            "nothing came back: does the function end in return?": bound_that_is_kept,
            "a worker alone does not settle from rate": bound_that_is_not_negative,
            "a bound is made of numbers, and 'below 0.386": bound_as_text,
            "a bound is made of numbers, and ['0', '0.386": bound_as_texts,
        },
    ),
    Gallery(
        "late_training",
        late_stub,
        [p15.late_training, late_by_background],
        {
            "the steps since the snapshot are thrown away.": late_from_the_mean,
            "they go on from the mean itself": late_at_the_new_place,
            "no mean has any effect": late_without_effect,
            "the correction has the wrong sign": late_with_the_wrong_sign,
            "the snapshot is not taken off": late_without_the_snapshot,
            "they go half of the way to the mean": late_half_way,
            "the mean is applied before the step": late_before_the_step,
            "leave it out.": late_at_the_end_too,
            "the mean is applied too early.": late_a_step_early,
            "x has not moved: change it in place": late_by_another_name,
            "x of rank 2 is 0.0580022, it should be 0.373078.": late_at_twice_the_rate,
            "take the rate that is given.": late_at_the_rate_of_the_text,
            "take the slope that is given.": late_on_the_bowl_alone,
            "tau 4, late 1, 9 steps: x of rank": late_for_one_number,
            "have 4 means: more was sent.": late_with_many_means,
            "a rank waits for one that has finished (on 4 ranks)": late_on_rank_0_alone,
        },
    ),
    Gallery(
        "elastic_step",
        step_stub,
        [step_by_copies, step_by_sum_of_places, step_by_a_server, step_that_returns_x],
        {
            "x of rank 0 is pulled with the force at the new x": pulls_with_the_new_x,
            "is pulled by the new places: take the forces before": pulls_c_with_the_new_x,
            "is pulled by places after step and spring": moves_x_first,
            "is pulled to the new centre: take the force before c moves.": moves_c_first,
            "feels its own worker's pull alone": pulls_by_itself,
            "moves by the mean of the pulls": pulls_by_the_mean,
            "c of rank 0 has not moved: the spring pulls at both ends.": pulls_on_one_end,
            "x of rank 0 feels no spring.": pulls_on_the_other_end,
            "moves away from the workers": pushes_c_away,
            "is pushed away from the centre": pushes_x_away,
            "walks uphill": walks_uphill,
            "feels the spring alone: where is the gradient?": forgets_the_gradient,
            "is pulled with alpha times the rate.": multiplies_by_the_rate,
            "has become the mean of the workers": takes_the_mean,
            "x of rank 0 has not moved: change it in place": gives_names_to_new_tensors,
            "x itself has to change: do not return another tensor.": returns_the_new_x,
            "2 times as many as one all-reduce of x.": sends_all_to_all,
            "x of rank 0 is pulled with the sum of all forces": pulls_x_by_the_sum,
            "on 2 ranks, x of rank 0 is 1.15, not 1.1.": halves_the_pull,
            "pulled with another alpha: take the alpha that is given.": step_by_another_alpha,
            "moves by another rate: take the rate that is given.": step_by_another_rate,
            "moves by another rate and alpha: take those": step_of_the_text,
            "on 1 rank, x of rank 0 is 2, not 1.415.": step_of_one_number,
            "c of rank 1 differs from rank 0's in the last bits": adds_in_an_order_of_its_own,
            "a rank waits for one that has finished (on 2 ranks)": only_rank_0_goes,
        },
    ),
    Gallery(
        "elastic_training",
        p15.force_taken_late,
        [p15.elastic_training, with_the_force_in_hand, with_a_clone],
        {
            "tau 1, step 1: the force is taken at the new x": late_still,
            "old = x: that is a second name, no copy": by_a_second_name,
            "the slope is taken at an x that the force has pulled": slope_taken_late,
            "x is pulled with the sum of all forces": summed_on_x,
            "x is pulled to the new centre: take the force": to_the_new_centre,
            "the centre moves by the mean of the forces": mean_on_c,
            "the centre feels its own worker's force alone": own_on_c,
            "the force on the centre is taken at the new x": late_on_the_centre_only,
            "tau 3, step 7: the loop's step 0 has no meeting": meets_at_the_ends,
            "tau 1, step 1: the loop's step 0 has no meeting": meets_first_at_tau,
            "tau 3, step 7: they meet in every step": meets_in_every_step,
            "have 3 meetings: more was sent.": elastic_everywhere,
            "x and centre of rank 0 are 0.8 and 0.8, not 0.7 and 0.8.": half_on_x,
            "tau 3, step 7: take the alpha that is given.": alpha_of_the_text,
            "tau 3, step 7: take the rate that is given.": rate_of_the_text,
            "tau 3, step 7: take the slope that is given.": slope_of_the_text,
            "tau 3, step 7: x and centre of rank 0": begins_at_zero,
            "differs from rank 0's in the last bits": centres_drift_apart,
            "a rank waits for one that has finished (on 2 ranks)": waits_for_rank_0,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
