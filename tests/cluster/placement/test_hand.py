"""Placements by hand say where things begin; what cannot be placed so is refused."""

import pytest
import torch
from torch import nn

from course.cluster.placement import placed_by_hand, schedule, traced
from tests.cluster.placement.machines import pair, short_of_memory
from tests.cluster.placement.nets import small


def test_what_is_not_told_goes_with_what_it_takes_from():
    module, x = small("branches")
    placement = placed_by_hand(traced(module, x), {"one_0": "gpu 1", "five_0_0": "gpu 0"})
    assert placement == {
        "one_0": "gpu 1", "three_0_0": "gpu 1", "three_1_0": "gpu 1", "five_0_0": "gpu 0",
        "five_1_0": "gpu 0", "pooled_0": "gpu 1", "pooled_1_0": "gpu 1", "cat": "gpu 1",
    }  # fmt: skip


def test_names_that_are_not_there_are_refused():
    module, x = small("chain")
    graph = traced(module, x)
    with pytest.raises(ValueError, match="no operation 'conv'"):
        placed_by_hand(graph, {"conv": "gpu 0"})
    with pytest.raises(ValueError, match="says at least where one operation is"):
        placed_by_hand(graph, {})
    with pytest.raises(ValueError, match="no operation 'conv'"):
        schedule(graph, placed_by_hand(graph, {"_0": "gpu 0"}) | {"conv": "gpu 0"}, pair())
    with pytest.raises(ValueError, match="_0 is on 'gpu 7', and the machine has gpu 0, gpu 1"):
        schedule(graph, placed_by_hand(graph, {"_0": "gpu 7"}), pair())
    with pytest.raises(ValueError, match="10 operations have no device: _3"):
        schedule(graph, {"_0": "gpu 0"}, pair())


def test_operations_that_share_weights_are_not_parted():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    graph = traced(nn.Sequential(first, second), torch.ones(1, 3))
    with pytest.raises(ValueError, match="_0 and _1 share weights, .* not on gpu 0 and gpu 1"):
        schedule(graph, {"_0": "gpu 0", "_1": "gpu 1"}, pair())


def test_weights_have_to_fit_their_device():
    net = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    graph = traced(net, torch.ones(1, 10))
    together, apart = ({"_0": "gpu 0", "_1": device} for device in ("gpu 0", "gpu 1"))
    assert schedule(graph, apart, short_of_memory(400)).seconds > 0
    assert schedule(graph, together, short_of_memory(800)).seconds > 0
    with pytest.raises(ValueError, match="gpu 0 holds 799 bytes, and the weights placed on it have "
                                         "800"):  # fmt: skip
        schedule(graph, together, short_of_memory(799))
