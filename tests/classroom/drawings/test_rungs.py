"""Rungs of successive halving: a line ends where its candidate was dropped."""

import math

from course.classroom.drawings import rungs
from course.parallel.farm.halving import Halving, Rung, Trial

PLAN = [Rung(4, 10), Rung(2, 20)]
FOUND = Halving(2, 0.1, None, [
    [Trial(2, 0.5, None), Trial(0, 0.7, None), Trial(3, 2.0, None), Trial(1, math.inf, None)],
    [Trial(2, 0.1, None), Trial(0, 0.4, None)],
])  # fmt: skip
NAMES = ["rate 1", "rate 100", "rate 0.1", "rate 0.01"]


def test_a_candidate_has_its_losses_up_to_its_last_rung():
    axes = rungs.draw(FOUND, PLAN, NAMES, "Halving", top=10)
    named = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    seen = {name: list(zip(line.get_xdata(), line.get_ydata())) for name, line in named.items()}
    assert seen == {
        "rate 1": [(10, 0.7), (30, 0.4)],
        "rate 0.1": [(10, 0.5), (30, 0.1)],
        "rate 0.01": [(10, 2.0)],
    }
    assert axes.get_yscale() == "log" and axes.get_xlabel() == "steps of a candidate"


def test_rungs_are_marked_and_those_that_failed_are_listed():
    axes = rungs.draw(FOUND, PLAN, NAMES, "Halving", top=10)
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert "a loss above 10, or none: rate 100" in places
    assert (places["4 candidates"], places["2 candidates"]) == (5, 20)  # between a rung's ends
    assert {"rate 1", "rate 0.1", "rate 0.01"} < set(places)


def test_a_loss_far_above_the_others_does_not_press_them_together():
    axes = rungs.draw(FOUND, PLAN, NAMES, "Halving", top=1)
    assert "a loss above 1, or none: rate 100, rate 0.01" in [t.get_text() for t in axes.texts]
    assert axes.get_ylim()[1] < 4


def test_nothing_is_listed_where_nobody_failed():
    trials = [Trial(0, 0.7, None), Trial(1, 0.9, None)]
    axes = rungs.draw(Halving(0, 0.7, None, [trials]), [Rung(2, 10)], NAMES[:2], "Halving", top=10)
    assert not [text for text in axes.texts if "none" in text.get_text()]
