"""The best interval: the figures of the paper, and the minimum of its model."""

import math

import pytest

from course.cluster.failover.interval import (
    daly,
    daly_lower_order,
    expected_time_s,
    first_order_waste,
    optimal,
    system_mtbf,
    waste,
    young,
)  # fmt: skip

MINUTE, HOUR = 60.0, 3600.0
PUBLISHED = [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)]


@pytest.mark.parametrize("mtbf_s, minutes", PUBLISHED)
def test_the_three_optima_of_dalys_paper(mtbf_s, minutes):
    """Saves of 5 minutes.  Source: Daly 2006, as its publisher's page has them."""
    found = daly(5 * MINUTE, mtbf_s) / MINUTE
    assert float(f"{found:.{0 if minutes > 10 else 1}f}") == minutes
    assert optimal(5 * MINUTE, mtbf_s) / MINUTE == pytest.approx(found, rel=0.004)


@pytest.mark.parametrize(
    "mtbf_s, minutes, slowdown",
    [(24 * HOUR, 116.690, 1.0958), (6 * HOUR, 56.714, 1.2204), (15 * MINUTE, 9.1665, 5.008)],
)
def test_the_exact_optimum_and_what_it_costs(mtbf_s, minutes, slowdown):
    save_s, restart_s, work_s = 5 * MINUTE, 10 * MINUTE, 500 * HOUR
    best = optimal(save_s, mtbf_s)
    assert best / MINUTE == pytest.approx(minutes, rel=1e-5)
    time_s = expected_time_s(work_s, best, save_s, mtbf_s, restart_s)
    assert time_s / work_s == pytest.approx(slowdown, rel=2e-4)
    for other in (0.99 * best, 1.01 * best):
        assert expected_time_s(work_s, other, save_s, mtbf_s, restart_s) > time_s


def test_sixteen_nodes_that_fail_once_a_year():
    mtbf_s = system_mtbf(365 * 24 * HOUR, 16)
    assert mtbf_s == 547.5 * HOUR
    assert young(60, mtbf_s) / MINUTE == pytest.approx(256.3, abs=0.05)
    assert daly(60, mtbf_s) / MINUTE == pytest.approx(255.7, abs=0.05)
    assert daly_lower_order(60, mtbf_s) == young(60, mtbf_s) - 60


def test_young_is_where_the_first_order_waste_is_least():
    best = young(20.0, 9000.0)
    least = first_order_waste(best, 20.0, 9000.0, 30.0)
    assert least == pytest.approx(20 / best + best / 18000 + 30 / 9000)
    for other in (0.98 * best, 1.02 * best):
        assert first_order_waste(other, 20.0, 9000.0, 30.0) > least
    assert waste(best, 20.0, 9000.0, 30.0) == pytest.approx(least, rel=0.1)


def test_long_saves():
    assert daly(30.0, 10.0) == 10.0 and daly(20.0, 10.0) == 10.0
    assert optimal(1e4, 10.0) <= 10.0
    assert expected_time_s(1.0, 1e5, 1.0, 1.0) == math.inf
    assert waste(1e5, 1.0, 1.0) == 1


@pytest.mark.parametrize("formula", [young, daly, daly_lower_order, optimal])
@pytest.mark.parametrize("save_s, mtbf_s", [(0, 1), (-1, 1), (1, 0), (1, math.inf), (math.nan, 1)])
def test_seconds_are_above_zero(formula, save_s, mtbf_s):
    with pytest.raises(ValueError, match="is a number of seconds above 0, not"):
        formula(save_s, mtbf_s)


@pytest.mark.parametrize("formula", [waste, first_order_waste])
@pytest.mark.parametrize("save_s, restart_s", [(-1, 0), (1, -1), (math.nan, 0), (1, math.inf)])
def test_saves_and_restarts_may_be_free_but_no_less(formula, save_s, restart_s):
    formula(1.0, 0.0, 9.0, 0.0)
    with pytest.raises(ValueError, match="_s is a number of seconds, 0 or more, not"):
        formula(1.0, save_s, 9.0, restart_s)
    with pytest.raises(ValueError, match="restart_s is a number of seconds, 0 or more, not -9"):
        daly_lower_order(1.0, 1.0, -9)


def test_nodes_are_counted():
    with pytest.raises(ValueError, match="the number of nodes is a whole number, 1 or more, not 0"):
        system_mtbf(1.0, 0)
