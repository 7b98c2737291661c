"""What is predicted of elastic averaging on a bowl is what running the recursion shows."""

import math
import random

import pytest
import torch

from course.parallel.elastic.stability import (
    centre_deviation,
    centre_losses,
    largest_alpha,
    mean_system,
    stable,
)


def together(x, c, product, alpha, tau, noise=0.0):
    """A period of all workers x [..., workers] and the centre c [..., 1], in place."""
    for step in range(tau):
        force = alpha * (x - c) if step == 0 else torch.zeros_like(x)
        x -= product * (x + noise * torch.randn_like(x)) + force
        c += force.sum(dim=-1, keepdim=True)


def in_turn(x, c, product, alpha, tau):
    """A period of each worker by itself, one after another."""
    for worker in range(x.shape[-1]):
        together(x[..., worker : worker + 1], c, product, alpha, tau)


def growth(period, workers, *case) -> float:
    """What a period does to the slowest pattern: the spectral radius of its matrix."""
    everything = torch.eye(workers + 1, dtype=torch.float64)
    period(everything[:, :workers], everything[:, workers:], *case)
    return float(torch.linalg.eigvals(everything).abs().max())


def cases(seed, count, product, taus):
    draw = random.Random(seed)
    for _ in range(count):
        workers, tau = draw.randint(1, 8), draw.choice(taus)
        yield workers, tau, draw.uniform(*product), draw.uniform(-0.2, 1.6)


@pytest.mark.parametrize("taus", [(1,), range(1, 9)])
def test_the_region_is_that_of_the_recursion_in_two_thousand_cases(taus):
    found = {True: 0, False: 0}
    for workers, tau, product, alpha in cases(1, 2000, (-0.3, 2.3), taus):
        radius = growth(together, workers, product, alpha, tau)
        if abs(radius - 1) > 1e-9:
            assert stable(product, alpha, workers, tau) == (radius < 1), (
                workers,
                tau,
                product,
                alpha,
            )
            found[radius < 1] += 1
    assert min(found.values()) > 200


def test_workers_in_turn_are_bound_as_a_single_one_is():
    inside = outside = 0
    for workers, _, product, alpha in cases(2, 2000, (0, 2), (1,)):
        radius = growth(in_turn, workers, product, alpha, 1)
        if stable(product, alpha):
            inside += 1
            assert radius < 1
        elif alpha > 1.1 * largest_alpha(product) and workers > 1:
            outside += 1
            assert radius > 0.98  # a few just outside still settle, slowly
    assert inside > 200 and outside > 200


def test_running_for_long_tells_the_same():
    for alpha, settles in ((0.39, True), (0.41, False)):  # 4 workers, a flat bowl: 0.4
        x, c = torch.ones(1, 4).double(), torch.zeros(1, 1).double()
        for _ in range(2000):
            together(x, c, 0.001, alpha, 1)
        assert (float(c.abs().max()) < 1) == settles


def test_bounds_by_hand():
    assert largest_alpha(1.0) == pytest.approx(2 / 3)
    assert largest_alpha(0.0, workers=4) == pytest.approx(2 / 5)
    assert largest_alpha(1.0, workers=3, tau=2) == pytest.approx(2 / 3)  # one step forgets x
    assert largest_alpha(0.5, workers=4, tau=10) > largest_alpha(0.5, workers=4)
    assert [largest_alpha(product) for product in (-0.1, 2.0, 2.5)] == [0, 0, 0]
    for product in (0.1, 0.7, 1.9):
        assert largest_alpha(product) == pytest.approx((4 - 2 * product) / (4 - product))


def test_the_mean_system_by_hand():
    expected = torch.tensor([[0.7, 0.2], [0.4, 0.6]], dtype=torch.float64)
    assert torch.allclose(mean_system(0.1, 0.2, 2), expected, rtol=0, atol=1e-15)


DEVIATIONS = {1: 0.1805, 4: 0.2045, 16: 0.2207, 64: 0.2254}  # times sqrt(workers)


@pytest.mark.parametrize("workers", DEVIATIONS)
def test_the_centre_s_noise_falls_as_the_root_of_the_workers(workers):
    alpha, product, draws = 0.9 / workers, 0.1, 3000
    scaled = centre_deviation(product, alpha, workers) * math.sqrt(workers)
    assert scaled == pytest.approx(DEVIATIONS[workers], abs=6e-5)
    torch.manual_seed(workers)
    x, c = torch.zeros(draws, workers).double(), torch.zeros(draws, 1).double()
    for _ in range(100):
        together(x, c, product, alpha, 1, noise=1.0)
    assert float(c.std()) == pytest.approx(scaled / math.sqrt(workers), rel=4 / (2 * draws) ** 0.5)


def steps_to(loss, workers, product, start=1.0):
    """Steps to an expected loss at the centre, if they are not more than 700."""
    losses = centre_losses(product, 0.9 / workers, workers, 700, start)
    return int((losses <= loss).nonzero()[0]) if (losses <= loss).any() else math.inf


def test_what_many_workers_gain_depends_on_what_is_in_the_way():
    """Far above the noise, at one rate: no more than a factor of two, since the centre weighs as
    much as one worker.  Near it, at the best rate for each: a factor of their number, not its root,
    in steps; of all workers' samples nothing is gained."""
    assert [steps_to(1.0, p, 0.1, start=10.0) for p in DEVIATIONS] == [40, 25, 21, 21]
    rates = [0.7 * 0.8**n for n in range(24)]
    best = [min(steps_to(0.002, p, rate) for rate in rates) for p in DEVIATIONS]
    assert best == [571, 143, 35, 10]


def test_the_expected_loss_ends_at_the_noise():
    last = centre_losses(0.1, 0.9 / 4, 4, 500)[-1]
    assert float(last) == pytest.approx(centre_deviation(0.1, 0.9 / 4, 4) ** 2 / 2)
    assert float(centre_losses(0.1, 0.2, 3, 0, start=3.0)) == 4.5


def test_noise_where_nothing_settles():
    with pytest.raises(ValueError, match="alpha must lie between 0 and 0.3958 to settle, not 0.5"):
        centre_deviation(0.1, 0.5, 4)
