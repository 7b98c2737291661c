"""Moments of steps, imagined and by formula; times of a cable that show something, or nothing."""

import pytest

from course.classroom.overlap_runs import (
    LAYERS,
    imagined_step,
    moments_of_steps,
    on_the_cable,
    real_step,
    when_sent,
)
from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_10G, GTX_680
from course.worlds import hosts, run, simulated

EIGHT = one_switch(8, GTX_680, ETHERNET_10G)


def test_moments_are_in_order_and_one_for_each_layer():
    on = simulated(EIGHT, device="meta")
    for steps in run(moments_of_steps, 8, 1.0, turns=3, on=on, checked=False):
        assert len(steps) == 3
        for moments in steps:
            assert len(moments) == LAYERS + 3 and moments == sorted(moments)


def test_formula_and_simulation_agree():
    for layers in (4, 16):
        (begin, _, *gradients, end), sends = imagined_step(layers, EIGHT)
        spans = when_sent(gradients, layers, 8, 20e-6, 1 / 1.25e9)
        assert begin == 0 and len(sends) == len(spans) == LAYERS // layers
        assert spans[-1][1] == pytest.approx(end, rel=0.02)
        for found, said in zip(sends, spans):
            assert found == pytest.approx(said, rel=0.05)


def test_a_bucket_waits_for_the_one_before():
    ready = [float(n) for n in range(LAYERS)]
    slow = when_sent(ready, 4, 2, 0.0, 1e-3)
    assert [begin for begin, _ in slow] == [3.0, *(end for _, end in slow[:-1])]
    quick = when_sent(ready, 4, 2, 0.0, 1e-12)
    assert [begin for begin, _ in quick] == [3.0, 7.0, 11.0, 15.0]


@pytest.mark.skipif(bool(hosts.available()), reason="no hosts in a box on this machine")
def test_a_real_step_is_the_quickest_of_its_turns():
    moments, sends = real_step(1, 2)
    assert len(moments) == LAYERS + 3 and moments == sorted(moments) and moments[0] == 0
    assert sends and all(0 <= begin <= end <= moments[-1] for begin, end in sends)


def test_times_are_told_unless_they_show_nothing():
    said = on_the_cable(60, 250, 230, 98.4, 141)
    assert said == "20 ms less: 98 of 141 ms of messages beside backward"
    for disturbed in ((60, 190, 180), (60, 350, 330), (60, 250, 260)):
        assert "show nothing" in on_the_cable(*disturbed, 100, 140)
