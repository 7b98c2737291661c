"""What formulas say of a plan: beside the program on the imagined cluster, and by hand."""

import pytest

from course.cluster.failover.interval import waste
from course.cluster.planning import (
    A100_ETHERNET,
    DGX_A100,
    RESTING,
    Assumptions,
    Plan,
    Transformer,
    estimate,
    simulated_step,
    step_parts,
    traffic,
)

SIZES = Transformer(64, 4, 4, 32, rest_flops=1e9)
ASSUMED = Assumptions(0.5, 1e9, {"A100": 2.0}, storage_bytes_per_s=1e9)


@pytest.mark.parametrize("axes", [(8, 1, 1), (1, 4, 2), (2, 2, 2), (4, 1, 2), (1, 1, 8)])
@pytest.mark.parametrize("shared", [False, True])
def test_seconds_are_those_of_the_program_where_arithmetic_is_all_that_a_card_does(axes, shared):
    slow = RESTING.network._replace(bytes_per_s=2e6)
    kind = RESTING._replace(cards=4 if axes[1] == 1 else 2, network=slow, shared=shared)
    kind = kind._replace(cards=8 if axes == (1, 1, 8) else kind.cards)
    plan = Plan(SIZES._replace(heads=8), kind, 8 // kind.cards, *axes, 64, 4)
    parts, found = step_parts(plan), simulated_step(plan)
    assert sum(parts.values()) == pytest.approx(found.seconds, rel=0.03)
    assert sum(parts.values()) > parts["arithmetic"] > 0


def test_what_formulas_leave_out_makes_a_step_longer():
    plan = Plan(Transformer(2048, 16, 2, 512), DGX_A100, 1, tensor=8, rows=32, micro_batches=2)
    assert sum(step_parts(plan, 0.5).values()) < simulated_step(plan, 0.5).seconds


def test_the_parts_of_a_step_by_hand():
    kind = RESTING._replace(cards=4)
    plan = Plan(SIZES, kind, 1, pipeline=4, rows=8, micro_batches=8)
    parts = step_parts(plan)
    per_letter = SIZES.block_flops + 2 * 256 * 64  # the last stage has the head
    assert parts["arithmetic"] == pytest.approx(8 * 3 * 32 * per_letter / 1e12)
    assert parts["bubble"] == pytest.approx(3 / 8 * parts["arithmetic"], rel=0.01)
    assert parts["tensor"] == parts["data"] == 0 < parts["pipeline"]


def test_days_money_and_energy_by_hand():
    plan = Plan(Transformer(512, 8, 4, 128), DGX_A100, 2, data=16, rows=64, micro_batches=1)
    told = estimate(plan, ASSUMED)
    save = 14 * plan.network.weights / 1e9
    lost = waste(3600.0, save, 365 * 86400 / 2, 600.0)
    assert told.failures == pytest.approx(lost)
    seconds = 1e9 / (64 * 128) * told.step_s / (1 - lost)
    assert told.days * 86400 == pytest.approx(seconds)
    assert told.money == pytest.approx(seconds / 3600 * 16 * 2.0)
    assert told.watts == 13_000 and told.mwh == pytest.approx(13 * seconds / 3600 / 1000)
    assert 0 < told.exposed < 1


def test_a_node_without_a_price_is_refused():
    plan = Plan(SIZES, RESTING, 1, data=2, rows=2)
    with pytest.raises(ValueError, match="a price for A100, and none for 'two resting ranks'"):
        estimate(plan, ASSUMED)


def test_traffic_along_an_axis_of_one_is_none():
    plan = Plan(SIZES, DGX_A100, 1, data=8, rows=64)
    told = traffic(plan)
    assert told["tensor"] == told["pipeline"] == 0 < told["data"]


def test_a_shared_adapter_is_slower():
    plan = Plan(Transformer(4096, 32, 4, 32), DGX_A100, 2, data=2, tensor=8, rows=64)
    cheap = plan.changed(node=A100_ETHERNET)
    ratio = step_parts(cheap)["data"] / step_parts(plan)["data"]
    assert ratio == pytest.approx(8 * 200 / 10, rel=0.1)
