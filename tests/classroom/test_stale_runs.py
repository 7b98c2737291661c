"""Runs with clients of known speeds: what takes a second, what arrives, what is judged."""

import math

import pytest
import torch
from torch import nn

from course.classroom.stale_runs import (
    best_rate,
    bowl_arrives,
    by_rate,
    by_version,
    known_speeds,
    out_of_step,
    servers_step_s,
    shards_step_s,
    slope,
    validation_loss,
)
from course.cluster.hardware import FDR
from course.learning.training.digits import SEEDS, digit_net, digit_split, judge
from course.worlds import run

WEIGHTS = nn.utils.parameters_to_vector(digit_net(0).parameters()).detach()


def test_a_gradient_takes_a_second_and_nothing_else_does():
    def work(comm):
        x = torch.ones(3)
        assert torch.equal(slope(x + x), 2 * x)
        x.softmax(dim=0)
        return comm.clock()

    assert run(work, 2, on=known_speeds(2, {1: 1.5})) == [2.0, 3.0]


def test_clients_out_of_step_differ_a_little_and_one_may_be_slow():
    assert out_of_step(3, {3: 4.0}) == {1: 1.01, 2: 1.02, 3: 4.0}


@pytest.mark.parametrize("clients", [1, 3])
def test_a_server_in_a_bowl_arrives_below_the_limit_of_its_clients_staleness(clients):
    limit = 2 * math.sin(math.pi / (4 * (clients - 1) + 2))
    assert bowl_arrives(clients, 0.9 * limit) and not bowl_arrives(clients, 1.1 * limit)


def test_weights_are_judged_by_images_that_nobody_learned():
    assert validation_loss(WEIGHTS) == judge(digit_net(0), digit_split().validation).loss


def test_every_rate_is_judged_by_the_last_version_of_five_seeds():
    asked = []

    def learn(update, seed):
        asked.append((update, seed))
        return [torch.zeros_like(WEIGHTS), update * WEIGHTS]

    rates, losses = by_rate(learn, float, [1, 0])
    assert asked == [(rate, seed) for rate in (1.0, 0.0) for seed in SEEDS]
    assert rates == [1, 0]
    assert losses[0] == [validation_loss(WEIGHTS)] * 5
    assert losses[1] == pytest.approx([math.log(10)] * 5)


def test_the_best_rate_has_the_least_mean_and_neighbours_that_are_nearly_as_good():
    losses = [[9, 9], [2.9, 3.0], [1, 3], [3, 3.2]]
    assert best_rate([1, 2, 4, 8], losses) == (4, [1, 3], (2, 4))


def test_versions_are_judged_where_they_were_seen_and_the_last_is_among_them():
    seen_at = {version: 2.0 * version for version in range(50)}
    path = [version / 49 * WEIGHTS for version in range(50)]
    versions, seconds, losses = by_version(lambda update, seed: path, None, seen_at, points=5)
    assert versions == [0, 10, 20, 30, 40, 49] and seconds == [2.0 * each for each in versions]
    assert losses[-1] == [validation_loss(WEIGHTS)] * 5 and len(losses) == 6


def test_a_step_takes_two_transfers_by_servers_and_nearly_two_by_shards_on_the_workers():
    elements = 10**7
    transfer_s = 4 * elements / FDR.bytes_per_s
    for servers, factor in ((2, 2), (4, 1), (8, 1)):
        seconds, of_server, _ = servers_step_s(4, servers, elements)
        assert seconds == pytest.approx(2 * factor * transfer_s, rel=0.01)
        assert of_server == pytest.approx(0.5 * min(1, 4 / servers), rel=0.01)
    assert shards_step_s(4, elements) == pytest.approx(2 * 3 / 4 * transfer_s, rel=0.01)
