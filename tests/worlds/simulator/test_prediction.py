"""The imagined cluster against a real Ethernet: the same function, foreseen and measured."""

import pytest

from benchmarks import prediction
from benchmarks.report import MB
from course.worlds import hosts

WHY_NOT = hosts.available()
BOX = hosts(2, rate="100mbit")  # more than cores would wait for one another


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_an_ethernet_in_a_box_takes_the_time_that_was_foreseen():
    """Where the wire is slow, what the machine does besides hardly matters; it can only delay."""
    jobs = [(algorithm, 2) for algorithm in ("flat", "tree", "ring")]
    cluster = prediction.imagined(BOX, prediction.figures(BOX))
    measured = prediction.measured_s(BOX, jobs, turns=4)
    for job in jobs:
        seconds = prediction.predicted_s(cluster, 2, *job)
        assert 0.95 < min(measured[job]) / seconds < 1.9, job


def test_a_box_is_imagined_with_its_links():
    """Two hosts of two ranks: the ring crosses each link twice, the flat way four times."""
    found = prediction.Figures(0.0, float("inf"), 0.0, 10.0 * MB, float("inf"))
    cluster = prediction.imagined(hosts(2, 2, "100mbit"), found)
    assert prediction.predicted_s(cluster, 4, "ring", 16) == pytest.approx(2 * 1.6 * 3 / 4)
    assert prediction.predicted_s(cluster, 4, "flat", 16) == pytest.approx(4 * 1.6)


def test_a_wrong_order_is_told():
    predicted = {("ring", 1): 1.0, ("tree", 1): 2.0, ("flat", 1): 2.1, ("flat", 4): 0.1}
    measured = {("ring", 1): [2.0], ("tree", 1): [1.0], ("flat", 1): [2.05], ("flat", 4): [9.0]}
    told = {job: list(prediction.misranked(job, predicted, measured)) for job in predicted}
    assert told == {("ring", 1): ["tree"], ("tree", 1): ["ring"], ("flat", 1): [], ("flat", 4): []}
