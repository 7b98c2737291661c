import itertools
import math

import pytest
import torch

from course.learning.training.descent import (
    batches,
    gradient_descent,
    largest_stable_rate,
    sharpest_curvature,
    stochastic_descent,
    value_and_gradient,
)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def bowl(curvatures, seed=0):
    """A quadratic loss with these second derivatives along a random set of axes, minimum at 0."""
    axes, _ = torch.linalg.qr(drawn(len(curvatures), len(curvatures), seed=seed))
    matrix = axes @ torch.diag(torch.tensor(curvatures, dtype=torch.float64)) @ axes.T
    return lambda weights: weights @ matrix @ weights / 2


def squared_error(weights, inputs, target):
    return ((inputs @ weights - target) ** 2).mean()


def small_net(weights):
    """A loss that is no quadratic: weights [4, 3] under a tanh."""
    return ((torch.tanh(drawn(20, 4) @ weights).sum(dim=1) - drawn(20, seed=1)) ** 2).mean()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_every_weight_and_loss_on_the_way_is_that_of_torch_sgd(momentum):
    start = drawn(4, 3, seed=2)
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([theirs], lr=0.1, momentum=momentum)
    run = gradient_descent(small_net, start, 0.1, 7, momentum)
    assert run.path.shape == (8, 4, 3) and run.losses.shape == (8,)
    for weights, loss in zip(run.path, run.losses, strict=True):
        torch.testing.assert_close(weights, theirs.detach(), atol=1e-13, rtol=0)
        torch.testing.assert_close(loss, small_net(theirs).detach(), atol=1e-13, rtol=0)
        optimizer.zero_grad()
        small_net(theirs).backward()
        optimizer.step()


def test_the_distance_to_the_minimum_is_multiplied_by_one_minus_rate_times_curvature():
    run = gradient_descent(lambda w: 2 * (w - 1.5) ** 2, torch.tensor(0.0).double(), 0.1, 6)
    expected = 1.5 - 1.5 * 0.6 ** torch.arange(7, dtype=torch.float64)
    torch.testing.assert_close(run.path, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("curvatures", [[3.0], [4.0, 0.1], [5.0, 4.9, 2.0, 0.3, 0.0]])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_just_below_the_largest_stable_rate_settles_and_just_above_blows_up(curvatures, momentum):
    loss, start = bowl(curvatures), drawn(len(curvatures), seed=3)
    limit = largest_stable_rate(loss, start, momentum)
    assert math.isclose(limit, 2 * (1 + momentum) / max(curvatures), rel_tol=1e-6)
    below, above = (
        gradient_descent(loss, start, share * limit, 600, momentum).losses[-1]
        for share in (0.99, 1.01)
    )
    assert below < 1e-3 * loss(start) and above > 1e3 * loss(start)


def test_a_run_far_above_the_rate_goes_on_to_infinity():
    run = gradient_descent(bowl([2.0]), drawn(1), 1e3, 200)
    assert run.path.shape == (201, 1) and not run.losses[-1].isfinite()


def test_the_start_is_left_as_it_was():
    start = drawn(2)
    before = start.clone()
    gradient_descent(bowl([1.0, 2.0]), start, 0.1, 3)
    sharpest_curvature(bowl([1.0, 2.0]), start)
    assert torch.equal(start, before) and not start.requires_grad


def test_no_step_gives_the_start_alone():
    run = gradient_descent(bowl([1.0]), drawn(1), 0.1, 0)
    assert torch.equal(run.path, drawn(1)[None]) and run.losses.shape == (1,)


def test_a_step_sees_the_rows_of_its_batch_and_no_others():
    inputs, target, start = drawn(10, 3), drawn(10, seed=1), drawn(3, seed=2)
    run = stochastic_descent(squared_error, (inputs, target), start, 0.1, 7, batch=4, seed=5)
    weights = start
    for step, rows in enumerate(itertools.islice(batches(10, 4, seed=5), 8)):
        torch.testing.assert_close(run.path[step], weights, atol=1e-13, rtol=0)
        missed = inputs[rows] @ weights - target[rows]
        torch.testing.assert_close(run.losses[step], (missed**2).mean(), atol=1e-13, rtol=0)
        weights = weights - 0.1 * 2 * inputs[rows].T @ missed / len(rows)


def test_a_batch_of_everything_is_gradient_descent():
    samples, start = (drawn(10, 3), drawn(10, seed=1)), drawn(3, seed=2)
    some = stochastic_descent(
        squared_error, samples, start, 0.1, 5, batch=10, seed=0, momentum=0.5
    )  # fmt: skip
    every = gradient_descent(lambda w: squared_error(w, *samples), start, 0.1, 5, momentum=0.5)
    torch.testing.assert_close(some.path, every.path, atol=1e-13, rtol=0)


def test_a_seed_decides_the_batches():
    samples, start = (drawn(10, 3), drawn(10, seed=1)), drawn(3, seed=2)
    first, again, other = (
        stochastic_descent(squared_error, samples, start, 0.1, 5, batch=3, seed=seed).path
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("samples, batch", [(12, 4), (10, 4), (7, 1), (5, 5)])
def test_every_round_deals_every_sample_once_in_a_new_order(samples, batch):
    in_a_round = -(-samples // batch)
    dealt = list(itertools.islice(batches(samples, batch, seed=0), 3 * in_a_round))
    rounds = [torch.cat(dealt[k * in_a_round : (k + 1) * in_a_round]).tolist() for k in range(3)]
    assert all(sorted(one) == list(range(samples)) for one in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    assert all(len(rows) == batch for rows in dealt[: in_a_round - 1])


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)])
def test_power_iteration_finds_the_largest_eigenvalue(shape):
    count = math.prod(shape)
    bend = drawn(count, count, seed=4)
    at = drawn(*shape, seed=5)

    def loss(weights):
        return torch.log1p(((bend @ weights.reshape(-1)) ** 2).sum()) + weights.sum() ** 4

    matrix = torch.autograd.functional.hessian(loss, at).reshape(count, count)
    eigenvalues = torch.linalg.eigvalsh(matrix)
    largest = eigenvalues[eigenvalues.abs().argmax()]
    assert math.isclose(sharpest_curvature(loss, at), largest, rel_tol=1e-6)


def test_float32_settles_even_where_its_digits_do_not_reach_the_tolerance():
    inputs, target = drawn(300, 20).float(), drawn(300, seed=1).float()
    curvature = sharpest_curvature(
        lambda w: squared_error(w, inputs, target), drawn(20).float(), tolerance=1e-12
    )
    eigenvalues = torch.linalg.eigvalsh(2 * inputs.T.double() @ inputs.double() / 300)
    assert math.isclose(curvature, eigenvalues[-1], rel_tol=1e-5)


def test_a_start_that_asks_for_gradients_gives_a_path_without_them():
    start = drawn(2).requires_grad_()
    run = gradient_descent(bowl([1.0, 2.0]), start, 0.1, 3)
    assert not run.path.requires_grad and not run.losses.requires_grad and start.grad is None


def test_a_flat_loss_has_no_curvature():
    assert sharpest_curvature(lambda w: w.sum(), drawn(3)) == 0
    assert sharpest_curvature(lambda w: (w**4).sum(), torch.zeros(3)) == 0


def test_two_opposite_curvatures_of_one_size_do_not_settle():
    with pytest.raises(ArithmeticError, match="no direction has settled after 50 steps"):
        sharpest_curvature(bowl([3.0, -3.0, 1.0]), drawn(3), most_steps=50)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: gradient_descent(bowl([1.0]), drawn(1), 0, 3), "above 0, not 0"),
        (lambda: gradient_descent(bowl([1.0]), drawn(1), math.nan, 3), "above 0, not nan"),
        (lambda: gradient_descent(bowl([1.0]), drawn(1), 0.1, -1), "0 or more, not -1"),
        (lambda: gradient_descent(bowl([1.0]), drawn(1), 0.1, 1, 1.0), "below 1, not 1.0"),
        (lambda: largest_stable_rate(bowl([1.0]), drawn(1), -0.1), "at least 0 .*, not -0.1"),
        (lambda: largest_stable_rate(bowl([1.0, -3.0]), drawn(2)), "above 0, not -[23]"),
        (lambda: largest_stable_rate(lambda w: w.sum(), drawn(2)), "above 0, not 0.0"),
        (lambda: value_and_gradient(lambda w: w, drawn(2)), r"one number .*, not \[2\]"),
        (lambda: batches(10, 11, 0), "a batch of 11 cannot be drawn from 10 samples"),
        (lambda: batches(10, 0, 0), "a batch of 0 cannot"),
        (
            lambda: stochastic_descent(
                squared_error, (drawn(4, 2), drawn(5)), drawn(2), 0.1, 1, batch=2, seed=0
            ),
            r"same number of rows, not \[4, 5\]",
        ),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
