import pytest

from course.classroom.drawings import offers
from course.cluster.planning import (
    DGX_A100,
    DGX_H100,
    Assumptions,
    Budget,
    Plan,
    Transformer,
    estimate,
    search,
)

SIZES = Transformer(8192, 64, 4, 512)
ASSUMED = Assumptions(0.5, 1e10, {"A100": 1.0, "H100": 3.0})


def test_every_candidate_is_a_dot_of_its_kind():
    found = search(SIZES, {DGX_A100: (1, 2), DGX_H100: (1,)}, ASSUMED, 64)
    axes = offers.draw(found, Budget(100.0, 12_000, 3.0), "The answer", unit="coins")
    dots = {each.get_label(): each.get_offsets().tolist() for each in axes.collections}
    small = [[c.estimate.days, c.estimate.money] for c in found
             if c.plan.node.name == "A100" and c.plan.nodes == 1]  # fmt: skip
    assert [x for dot in dots["A100"] for x in dot] == pytest.approx(
        [x for dot in small for x in dot]
    )
    assert sum(map(len, dots.values())) == len(found)
    assert set(dots) == {"A100", "A100, too much power", "H100"}
    assert (axes.patches[0].get_width(), axes.patches[0].get_height()) == (3.0, 100.0)
    axes.set(xlim=(1, 600), ylim=(1_000, 60_000))
    axes.figure.canvas.draw()
    told = {label.get_text() for label in axes.get_xticklabels() + axes.get_yticklabels()}
    assert {"2", "50", "500", "20,000"} <= told and not any("$" in text for text in told)
    assert axes.get_title(loc="left") == "The answer" and axes.get_ylabel() == "money (coins)"


def test_a_plan_of_ones_own_is_a_star_where_its_days_and_money_are():
    told = estimate(Plan(SIZES, DGX_A100, 1, tensor=8, rows=64), ASSUMED)
    found = search(SIZES, {DGX_A100: (1,)}, ASSUMED, 64)
    axes = offers.draw(found, Budget(100.0, 12_000, 3.0), "", unit="coins", own=(None, told))
    (star,) = [each for each in axes.collections if each.get_label() == "your own plan"]
    assert star.get_offsets().tolist() == [[told.days, told.money]]
    assert "your own plan" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_how_many_servers_stands_below_the_cheapest_plan_of_so_many():
    found = search(SIZES, {DGX_A100: (1, 2)}, ASSUMED, 64)
    axes = offers.draw(found, Budget(100.0, 12_000, 3.0), "", unit="coins")
    told = {text.get_text(): text for text in axes.texts if text.get_text().endswith(" x")}
    assert set(told) == {"1 x", "2 x"}
    for count, text in ((1, told["1 x"]), (2, told["2 x"])):
        cheapest = min((c.estimate.money, c.estimate.days) for c in found if c.plan.nodes == count)
        assert text.xy == cheapest[::-1] and text.xyann[1] < 0
