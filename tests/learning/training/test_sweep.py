import math

import pytest
import torch

from course.learning.training import descent, digits
from course.learning.training.sweep import critical_batch_size, steps_to_target


def one_by_one(batch, rate, seed, target, every=1):
    """Steps to the target of one network, by the plain loop."""
    (x, y), validation, _ = digits.digit_split(torch.float64)
    net = digits.digit_net(seed).double()
    optimizer = torch.optim.SGD(net.parameters(), rate)
    for step, rows in enumerate(descent.batches(len(x), batch, seed), start=1):
        digits.backward(net, x[rows], y[rows])
        optimizer.step()
        if step % every == 0 and digits.judge(net, validation).error <= target:
            return step


@pytest.mark.parametrize(("batch", "every"), [(256, 1), (16, 2)])
def test_a_stack_takes_the_steps_that_each_network_takes_alone(batch, every):
    steps = steps_to_target(batch, [0.4, 0.8], target=0.3)
    assert steps.shape == (2, len(digits.SEEDS)) and steps.isfinite().all()
    for row, rate in enumerate((0.4, 0.8)):
        for seed in (0, 3):
            assert steps[row, seed] == one_by_one(batch, rate, seed, 0.3, every)


def test_who_is_not_half_as_fast_as_the_best_is_not_waited_for():
    fast, slow = steps_to_target(512, [1.6, 0.01], target=0.3)
    assert fast.isfinite().all() and (slow == math.inf).all()


def test_a_sweep_ends_where_nobody_arrives():
    assert steps_to_target(512, [1e-6], most=3).tolist() == [[math.inf] * len(digits.SEEDS)]


def test_the_fit_finds_the_curve_that_was_drawn():
    curve = {b: 12 * (1 + 90 / b) for b in (4, 32, 256, 1024)}
    assert critical_batch_size(curve) == pytest.approx((12, 90))


def test_a_batch_counts_by_its_relative_distance():
    off_at_4 = {4: 1.1 * 282, 64: 28.875, 1024: 13.0546875}
    off_at_1024 = {4: 282, 64: 28.875, 1024: 1.1 * 13.0546875}
    apart = [abs(12 - critical_batch_size(each)[0]) for each in (off_at_4, off_at_1024)]
    assert 0.2 < apart[1] < 1.5 and apart[0] < 0.5
