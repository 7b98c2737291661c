"""A budget says what a plan overruns; a search finds plans within it."""

from course.cluster.failover.interval import system_mtbf, waste
from course.cluster.planning import (
    DGX_A100,
    DGX_H100,
    Assumptions,
    Budget,
    Plan,
    Transformer,
    best_interval,
    check_memory,
    estimate,
    overruns,
    search,
)
from course.cluster.planning.prediction import save_seconds

SIZES = Transformer(8192, 64, 4, 512)
ASSUMED = Assumptions(0.5, 1e10, {"A100": 1.0, "H100": 3.0})


def test_overruns_say_by_how_much():
    told = estimate(Plan(SIZES, DGX_A100, 2, data=2, tensor=8, rows=64), ASSUMED)
    fits = Budget(told.money + 1, told.watts, told.days + 1)
    assert overruns(told, fits) == []
    assert overruns(told, Budget(told.money - 2, 12_000, told.days - 0.25)) == [
        f"money {told.money:,.0f} of {told.money - 2:,.0f}: 2 too much",
        "kW 13.0 of 12.0: 1.0 too much",
        f"days {told.days:,.1f} of {told.days - 0.25:,.1f}: 0.2 too much",
    ]


def test_a_search_finds_what_fits_the_cheapest_first():
    found = search(SIZES, {DGX_A100: (1, 2), DGX_H100: (1,)}, ASSUMED, 256)
    prices = [each.estimate.money for each in found]
    assert prices == sorted(prices) and len({str(each.plan) for each in found}) == len(found)
    for plan, told in found:
        assert check_memory(plan).total <= 0.85 * plan.node.device.memory_bytes
        assert told == estimate(plan, ASSUMED)
        if plan.sharded:  # only where it is needed
            assert max(16 * 0.9 * SIZES.weights / (plan.pipeline * plan.tensor), 0) > 10e9
    assert {(each.plan.node.name, each.plan.nodes) for each in found} == {
        ("A100", 1), ("A100", 2), ("H100", 1)}  # fmt: skip


def test_the_interval_is_the_best():
    plan = Plan(SIZES, DGX_A100, 2, data=2, tensor=8, rows=64)
    best, save = best_interval(plan, ASSUMED), save_seconds(plan, ASSUMED)
    mtbf = system_mtbf(ASSUMED.node_mtbf_s, 2)
    least = waste(best, save, mtbf, ASSUMED.restart_s)
    assert all(waste(best * k, save, mtbf, ASSUMED.restart_s) > least for k in (0.8, 1.25))
