"""The networks of Coates et al. 2013: their sizes, and the step that is recorded."""

import pytest
import torch

from course.cluster.cots.network import PUBLISHED, fine_tuning_step, plan_for, record_step, weights
from course.learning.nine_layers import Geometry, NineLayers, Norm, Plan
from course.learning.nine_layers.plan import sizes
from course.worlds import run

SMALL = Plan(3, 24, None, tuple(
    Geometry(field, 2, maps, 0.1, 2, 1, Norm(3, 1.0, 0.01), 2)
    for field, maps in ((4, 2), (3, 3), (3, 2))
))  # fmt: skip


@pytest.mark.parametrize("wanted", PUBLISHED.values())
def test_sizes_are_those_of_the_paper(wanted):
    plan = plan_for(wanted)
    assert abs(weights(plan) / wanted - 1) < 0.01
    maps = [stage.maps for stage in plan.stages]
    assert max(maps) - min(maps) <= 1


def test_weights_are_those_of_the_network():
    with torch.device("meta"):
        net = NineLayers(SMALL, seed=0)
    assert weights(SMALL) == sum(weight.numel() for weight in net.parameters())


def test_a_size_that_no_number_of_maps_gives_is_refused():
    with pytest.raises(ValueError, match="no network has 50,000,000 weights to 1 %: the nearest"):
        plan_for(50e6)


def metered(comm):
    fine_tuning_step(comm, SMALL, batch=2)
    return comm.meter.sent_bytes


@pytest.mark.parametrize("cards", [1, 4])
def test_the_recorded_step_sends_what_real_ranks_send(cards):
    assert record_step(SMALL, cards, batch=2).sent_bytes() == run(metered, cards)


def test_the_recorded_step_computes_what_a_step_costs():
    """Products forward, and backward for weights and, but for the images, for inputs."""
    batch, [first, *rest] = 5, [size.weights for size in sizes(SMALL)]
    products = 2 * batch * (2 * first + 3 * sum(rest))
    recording = record_step(SMALL, 4, batch=batch)
    counted = sum(event.flops for events in recording.events for event in events
                  if getattr(event, "operation", None) == "bmm")  # fmt: skip
    assert counted == products


def test_every_weight_is_updated():
    for cards in (1, 4):
        updates = [event for events in record_step(SMALL, cards, batch=1).events for event in events
                   if getattr(event, "operation", None) == "sub_"]  # fmt: skip
        assert sum(event.nbytes for event in updates) == 3 * 4 * weights(SMALL)


@pytest.mark.parametrize("cards", [2, 12])
def test_a_grid_is_square(cards):
    with pytest.raises(ValueError, match=f"1, 4, 9, ... cards, not {cards}"):
        record_step(SMALL, cards)


def test_a_network_that_fits_no_card_is_refused():
    sentence = "rank 0 of 2 x 2 holds 2,808.* gradient 22.5 GB, and a GTX 680 has 4 GB"
    with pytest.raises(ValueError, match=sentence):
        record_step(plan_for(11.2e9), 4)
