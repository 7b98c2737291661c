"""Programs of the scoreboard: each learns what it should, and sends what its formula says."""

import functools

import pytest

from course.classroom import scoreboard
from course.classroom.scoreboard import steps_for, trial
from course.classroom.trainings import (
    RATE,
    by_asynchronous_server,
    by_gossip,
    by_server,
    data_parallel,
    elastic,
    elastic_by_server,
)
from course.learning.training import digits
from course.parallel.flat_parameters import FlatParameters
from course.parallel.server.staleness import bounded

WEIGHTS = 64 * 32 + 32 + 32 * 10 + 10
START = digits.judge(digits.digit_net(0), digits.digit_split().validation)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(scoreboard, "IMAGES", 12 * 64)


def serial(seed, batch, rate):
    """The verdict on a net that learned from whole batches on one process."""
    net, split = digits.digit_net(seed), digits.digit_split()
    weights = FlatParameters(net)
    for x, y in digits.batches(split.training, batch, steps_for(batch), seed):
        digits.backward(net, x, y)
        weights.add_gradient(weights.flat, -rate)
    return digits.judge(net, split.validation)


@pytest.mark.parametrize("batch", [64, 256])
def test_data_parallel_learns_what_one_process_learns_and_sends_by_formula(batch):
    outcome = trial(functools.partial(data_parallel, rate=0.4), 3, batch=batch)
    assert outcome.verdict.loss == pytest.approx(serial(3, batch, 0.4).loss, rel=1e-4)
    assert outcome.step_bytes == 2 * 4 * WEIGHTS  # two exchanges among 4


def test_a_server_in_step_learns_what_one_process_learns_and_sends_most():
    outcome = trial(by_server, 0, servers=1)
    assert outcome.verdict.loss == pytest.approx(serial(0, 64, RATE).loss, rel=1e-4)
    assert outcome.step_bytes == pytest.approx(4 * 4 * WEIGHTS, rel=0.03)  # and short heads


def test_the_mean_of_gossip_is_near_the_gradients_mean():
    outcome = trial(by_gossip, 0)
    assert outcome.verdict.loss == pytest.approx(serial(0, 64, RATE).loss, rel=0.1)
    assert outcome.step_bytes == pytest.approx(2 * 4 * WEIGHTS, rel=0.1)


by_bounded_server = functools.partial(by_server, rule=bounded(2))


@pytest.mark.parametrize("train", [by_bounded_server, by_asynchronous_server])
def test_servers_of_other_rules_run_and_learn(train):
    outcome = trial(train, 0, servers=1, alone=train is by_asynchronous_server, slow=5.0)
    assert outcome.verdict.loss == pytest.approx(serial(0, 64, RATE).loss, rel=0.3)


def test_elastic_averaging_sends_its_weights_at_each_meeting():
    """12 steps have a meeting at the end of step 5 and of step 10."""
    outcome = trial(functools.partial(elastic, tau=5), 0)
    assert outcome.step_bytes == pytest.approx(2 * 2 * 4 * WEIGHTS / 12)
    assert outcome.verdict.loss < START.loss / 2


def test_a_served_centre_keeps_nobody_waiting():
    how = {"servers": 1, "alone": True}
    quick, slow = (trial(elastic_by_server, 0, slow=slow, **how) for slow in (1.0, 5.0))
    assert slow.seconds < 1.4 * quick.seconds
    assert quick.verdict.loss < START.loss / 2
