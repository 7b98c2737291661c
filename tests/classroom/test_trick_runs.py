"""The trick's runs: counts by hand, a rank's part of the whole weights, moments in order."""

import pytest
import torch
from torch import nn

from course.classroom import trick_runs
from course.classroom.steps import megabytes_and_ms
from course.classroom.trick_runs import (
    apart_from_whole,
    cut_dense,
    descend,
    digit_halves,
    layer_counts,
    on_one_process,
    round_moments,
    step_by_examples,
    step_by_the_trick,
    weights_of,
)
from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_10G, FREE, K20
from course.parallel.hybrid.weird_trick import CutLinear, weird_trick_cost
from course.worlds import run, simulated


def small():
    """Two halves for the large images: few weights, and few neurons at the border."""
    dense = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
    return nn.Sequential(nn.Conv2d(3, 3, 56, 56), nn.Flatten(), nn.MaxPool1d(4)), dense


def test_layers_are_counted_as_by_hand():
    assert layer_counts(small, 10) == [
        ("Conv2d", 3 * 3 * 56 * 56, 16 * 3 * 3 * 56 * 56, 10 * 3 * 224 * 224),
        ("Linear", 12 * 8, 12 * 8, 10 * 12),
        ("Linear", 8 * 4, 8 * 4, 10 * 8),
    ]


def test_a_step_goes_against_the_gradient_and_clears_it():
    net = nn.Linear(2, 1, bias=False)
    before = net.weight.detach().clone()
    net(torch.tensor([1.0, 2.0])).backward()
    descend(net, rate=0.5)
    assert torch.equal(net.weight.detach(), before - torch.tensor([[0.5, 1.0]]))
    assert net.weight.grad is None


def test_both_halves_learn_and_are_the_same_every_time():
    start, once, again = weights_of(*digit_halves()), on_one_process(2), on_one_process(2)
    assert len(start) == len(once) == 6
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert all((a - b).abs().max() > 0 for a, b in zip(start, once, strict=True))


def test_a_ranks_part_is_compared_with_its_part_of_the_whole():
    whole = [torch.arange(6.0).view(3, 2), torch.ones(2)]
    everyones = [[whole[0][:2], torch.ones(2)], [whole[0][2:], torch.ones(2)]]
    assert apart_from_whole(whole, everyones) == 0
    assert apart_from_whole(whole, everyones[::-1]) > 1
    everyones[1][1] = torch.tensor([1.0, 1.25])
    assert apart_from_whole(whole, everyones) == 0.25


def test_linear_layers_are_cut_and_the_last_one_knows_that_it_is():
    def kinds(comm):
        layers = cut_dense(comm, small()[1])
        return [(type(layer).__name__, getattr(layer, "last", None)) for layer in layers]

    expected = [(CutLinear.__name__, False), ("ReLU", None), (CutLinear.__name__, True)]
    assert run(kinds, 2, on=simulated(one_switch(2, FREE, ETHERNET_10G))) == [expected] * 2


@pytest.mark.parametrize(("scheme", "rounds"), [("a", 1), ("b", 3), ("c", 3)])
def test_rounds_begin_and_end_one_after_another(scheme, rounds):
    world = simulated(one_switch(3, K20, ETHERNET_10G), device="meta")
    for moments in run(round_moments, 3, small, scheme, on=world):
        assert len(moments) == 1 + 2 * rounds
        assert moments == sorted(moments) and moments[0] > 0


def test_a_step_sends_what_the_border_and_the_filters_need():
    cluster = one_switch(4, FREE, ETHERNET_10G)
    rows = [trick_runs.IMAGES] * 4
    border = weird_trick_cost("c", rows, 4 * 12, 8, [8, 4], 4).sent_bytes[0]
    filters = 2 * 3 * 4 * (3 * 3 * 56 * 56 + 3) / 4
    by_trick, _ = megabytes_and_ms(4, step_by_the_trick, small, "c", cluster=cluster)
    by_examples, _ = megabytes_and_ms(4, step_by_examples, small, cluster=cluster)
    assert 1e6 * by_trick == pytest.approx(border + filters, rel=1e-3)
    assert 1e6 * by_examples == pytest.approx(filters + 2 * 3 * 4 * (12 * 8 + 8 * 4) / 4, rel=1e-3)
