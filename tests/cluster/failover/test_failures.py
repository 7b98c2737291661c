"""Simulated failures: by hand, and against the formulas."""

import itertools
import math
import statistics

import pytest

from course.cluster.failover.failures import exponential_gaps, node_gaps, simulate
from course.cluster.failover.interval import expected_time_s, optimal, system_mtbf, waste


def test_without_failures():
    job = simulate(10, 4, 1, 2, [])
    assert job == (10, 3, 0, 0, 0) and job.time_s == 13 and job.waste == pytest.approx(3 / 13)


def test_by_hand():
    """Saved at 5; failed at 9 in the save, which was worth nothing; failed again in the restart, at
    10; then the restart until 12, the work until 16, its save until 17, and the rest."""
    job = simulate(10, 4, 1, 2, [9, 1])
    assert job.lost_s == 4 and job.restarting_s == 1 + 2 and job.failures == 2
    assert job.saving_s == 3 and job.time_s == 10 + 3 + 4 + 3


def test_a_failure_at_the_end_of_a_save_finds_it_whole():
    assert simulate(8, 4, 1, 0, [5]).lost_s == 0


def test_whole_intervals_are_not_split_by_rounding():
    assert simulate(1.1, 0.1, 1, 0, []).saving_s == 11


@pytest.mark.parametrize("interval_s", [20.0, 100.0, 400.0])
def test_the_mean_time_is_that_of_dalys_model(interval_s):
    """A mean over 400 jobs, within four of its standard errors."""
    numbers = (interval_s, 10.0, 300.0, 15.0)
    times = []
    for seed in range(400):
        times.append(simulate(2000, *numbers[:2], 15.0, exponential_gaps(300.0, seed)).time_s)
    error = statistics.stdev(times) / math.sqrt(len(times))
    assert abs(statistics.mean(times) - expected_time_s(2000, *numbers)) < 4 * error
    assert error < 0.05 * statistics.mean(times)


def test_least_is_wasted_at_the_best_interval():
    """The same failures strike all intervals."""
    best, wasted = optimal(10.0, 300.0), {}
    for factor in (0.4, 1.0, 2.5):
        job = simulate(3e5, factor * best, 10.0, 15.0, exponential_gaps(300.0, seed=1))
        wasted[factor] = job.waste
        assert job.waste == pytest.approx(waste(factor * best, 10.0, 300.0, 15.0), rel=0.05)
    assert wasted[1.0] < min(wasted[0.4], wasted[2.5])


def test_many_nodes_fail_as_one_that_fails_as_often():
    gaps = list(itertools.islice(node_gaps(800.0, 16, seed=2), 4000))
    expected = system_mtbf(800.0, 16)
    assert statistics.mean(gaps) == pytest.approx(expected, rel=4 / math.sqrt(4000))
    assert statistics.stdev(gaps) == pytest.approx(expected, rel=0.08)  # of an exponential
    one = list(itertools.islice(node_gaps(50.0, 1, seed=3), 5))
    assert one == pytest.approx(list(itertools.islice(exponential_gaps(50.0, seed=3), 5)))


def test_a_job_that_cannot_end_is_told():
    with pytest.raises(ArithmeticError, match="failures, and 0 of 1 intervals done"):
        simulate(10, 10, 1, 0, itertools.repeat(2.0))
    with pytest.raises(ArithmeticError, match="failures, and 0 of 1 intervals done"):
        simulate(10, 10, 1, 5, itertools.repeat(2.0))


@pytest.mark.parametrize("times", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1),
                                   (1, math.nan, 1, 1), (math.inf, 1, 1, 1), (1, 1, math.inf, 1),
                                   (1, 1, 1, math.inf)])  # fmt: skip
def test_times_that_cannot_be(times):
    with pytest.raises(ValueError, match="work and interval are seconds above 0, save and restart"):
        simulate(*times, [])


@pytest.mark.parametrize("gap_s", [-1.0, math.nan])
def test_gaps_that_cannot_be(gap_s):
    for gaps in ([gap_s], [1, gap_s]):
        with pytest.raises(
            ValueError, match=f"0 seconds or more from a failure to the next, not {gap_s}"
        ):
            simulate(10, 5, 1, 2, gaps)


@pytest.mark.parametrize("mtbf_s", [0, -5.0, math.inf])
def test_a_mean_time_that_cannot_be(mtbf_s):
    for gaps in (exponential_gaps(mtbf_s, seed=0), node_gaps(mtbf_s, 4, seed=0)):
        with pytest.raises(ValueError, match="mtbf_s is a number of seconds above 0, not"):
            next(gaps)


def test_never_to_save_is_one_interval():
    for failures in ([], [9, 1], [9, 20, 100]):
        assert simulate(10, math.inf, 1, 2, failures) == simulate(10, 10, 1, 2, failures)
