"""Noise by hand, lines that tell what was learned, and steps that mix before they descend."""

import pytest
import torch

from course.classroom import trainings
from course.classroom.gossip_training import decentralised, noise_factor, told_graph
from course.classroom.many_workers import deals, losses, slopes, starts
from course.learning.training.digits import backward, digit_net, digit_split
from course.parallel.flat_parameters import FlatParameters


def test_noise_is_the_mean_over_all_other_patterns():
    matrix = torch.diag(torch.tensor([1.0, 0.5, 0.0, -0.5], dtype=torch.float64))
    assert noise_factor(matrix) == pytest.approx((4 / 3 + 1 + 4 / 3) / 3)


def test_a_line_tells_gap_noise_loss_and_whether_a_higher_rate_learns():
    matrix, flat = torch.full((2, 2), 0.5, dtype=torch.float64), starts(2)
    better = flat
    for x, y in deals(2, 64, 5):
        better = better - 0.5 * slopes(better, x, y)
    line, mean = told_graph("pair", matrix, flat, better)
    assert line.startswith("pair          gap 1.000, noise x  1.00; mean of all ")
    assert line.endswith("at rate 1 it learns") and torch.allclose(mean, losses(flat[:, 0]))
    assert told_graph("pair", matrix, flat, 50 * flat)[0].endswith("at rate 1 worse than guessing")


def test_a_step_mixes_and_then_uses_the_gradient_of_before():
    net, told = digit_net(0), []
    x, y = (part[:8] for part in digit_split().training)
    before = FlatParameters(digit_net(0)).flat.clone()
    backward(reference := digit_net(0), x, y)
    slope = torch.cat([p.grad.flatten() for p in reference.parameters()])

    def halve(comm, weights, step):
        told.append(step)
        weights.mul_(0.5)

    after = decentralised(halve)(None, net, [(x, y)])
    assert told == [0]
    assert torch.allclose(after, 0.5 * before - trainings.RATE * slope, atol=1e-6)
