"""Noise by hand, cells that tell what was learned, and steps that mix before they descend."""

import pytest
import torch

from course.classroom import trainings
from course.classroom.gossip_training import decentralised, noise_factor, told_losses
from course.classroom.many_workers import deals, losses, slopes, starts
from course.learning.training.digits import backward, digit_net, digit_split
from course.parallel.flat_parameters import FlatParameters
from course.parallel.gossip.topology import metropolis, ring_graph


def test_noise_of_one_graph_is_the_mean_over_all_other_patterns():
    matrix = metropolis(ring_graph(4))  # its other eigenvalues are 1/3, 1/3 and -1/3
    assert noise_factor([matrix], 1) == pytest.approx(1)
    assert noise_factor([matrix], 2) == pytest.approx(1 + 1 / 9)
    assert noise_factor([matrix], 100) == pytest.approx(9 / 8)


def test_noise_of_a_cycle_is_that_of_its_matrices_in_turn():
    near, far = ((torch.eye(4) + torch.eye(4).roll(hop, dims=0)) / 2 for hop in (1, 2))
    assert noise_factor([near, far], 100) == pytest.approx(1 + 1 / 3)  # exact after two
    assert noise_factor([far], 9) == pytest.approx((1 + 1 + 9) / 3)  # what halves never meet


def test_noise_of_workers_alone_adds_up():
    assert noise_factor([torch.eye(3)], 7) == pytest.approx(7)


def test_a_row_tells_the_losses_and_whether_a_higher_rate_learns():
    flat = starts(2)
    better = flat
    for x, y in deals(2, 64, 5):
        better = better - 0.5 * slopes(better, x, y)
    line, mean, learned = told_losses(flat, better)
    told = losses(flat[:, 0])
    assert torch.allclose(mean, told) and learned
    cells = [f"{told.mean():.3f}", "±", f"{told.std():.3f}", f"{told.median():.3f}"]
    faster = f"{losses(better.flatten(0, 1)).median():.1f}"
    assert line.split() == [*cells, f"{told.mean():.3f}", faster]
    line, _, learned = told_losses(flat, 50 * flat)
    assert line.endswith(" diverges") and not learned


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
