"""Rounds are drawn as they were: what is computed above, what travels below."""

import pytest
import torch
from torch import nn

from course.classroom.drawings import round_lanes
from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_10G, K20


def network():
    return (), nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))


@pytest.fixture(scope="module")
def found():
    cluster = one_switch(4, K20, ETHERNET_10G)
    return {scheme: round_lanes.lanes(network, scheme, cluster) for scheme in "ac"}


def test_each_round_is_a_piece_and_its_images_come_before_it(found):
    for scheme, count in (("a", 1), ("c", 4)):
        computed, network = found[scheme].values()
        assert [piece.text for piece in computed] == [str(n) for n in range(1, count + 1)]
        assert network[0].end <= computed[0].start and network[-1].end > computed[-1].end


def test_images_come_before_their_round_and_gradients_return_after_it(found):
    computed, network = found["c"].values()
    images, gradients = ([piece for piece in network if piece.what == what]
                         for what in ("images come", "gradients return"))  # fmt: skip
    for come, go, back in zip(images, computed, gradients, strict=True):
        assert come.text == go.text == back.text
        assert come.end <= go.start and go.end <= back.start


def test_time_is_counted_from_when_the_weights_are_made(found):
    def made_slowly():
        torch.zeros(10**8)
        return network()

    later = round_lanes.lanes(made_slowly, "a", one_switch(4, K20, ETHERNET_10G))
    for lane, other in zip(found["a"].values(), later.values(), strict=True):
        assert [piece[1:3] for piece in lane] == [pytest.approx(piece[1:3]) for piece in other]


def test_lanes_are_named_by_scheme_and_end_where_the_last_piece_ends(found):
    assert list(found["c"]) == ["(c) computes", "(c) network"]
    last = found["c"]["(c) network"][-1]
    assert round_lanes.end_ms(found["c"]) == last.end > 0


def test_schemes_are_drawn_one_below_the_other(found):
    axes = round_lanes.draw(found, "a and c")
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["(a) computes", "(a) network", "(c) computes", "(c) network"]
    assert "a and c" in (axes.get_title(loc="left"), axes.get_title())
    assert axes.get_xlabel() == "time (ms)"
    bars = sum(len(lane) for each in found.values() for lane in each.values())
    assert len(axes.patches) == bars
