"""A step takes as long as the slowest of those that are waited for."""

import pytest
import torch

from course.classroom.waiting import DELAY_S, WORK_S, seconds_a_step


def alone(ends, step):
    return ends


def all_of_them(ends, step):
    return ends.max().expand(len(ends))


def test_a_rank_alone_takes_its_work_and_the_mean_delay():
    assert seconds_a_step(alone, 1, 2000) == pytest.approx(WORK_S + DELAY_S, rel=0.02)


@pytest.mark.parametrize("p", [4, 64])
def test_waiting_for_all_takes_the_largest_of_all_delays(p):
    harmonic = sum(1 / k for k in range(1, p + 1))  # the mean of the largest of p exponential ones
    expected = WORK_S + DELAY_S * harmonic
    assert seconds_a_step(all_of_them, p, 400) == pytest.approx(expected, rel=0.03)


def test_the_step_is_told_and_the_same_call_gives_the_same():
    told = []

    def noting(ends, step):
        told.append(step)
        return ends

    assert seconds_a_step(noting, 3, 4) == seconds_a_step(alone, 3, 4)
    assert told == [0, 1, 2, 3] * 5


def test_the_slowest_rank_counts():
    def one_is_slow(ends, step):
        return ends + torch.tensor([0.0, 10.0])

    assert seconds_a_step(one_is_slow, 2, 10) > 10
