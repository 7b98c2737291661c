"""Rows at the ends of strips, moments of the quickest turn, and layers on square tiles."""

import pytest
import torch
from torch.nn.functional import conv2d

from course.classroom.interior_runs import (
    end_rows,
    imagined_moments,
    layer_moments,
    square_layer,
    square_layer_ms,
)
from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, ETHERNET_10G, FDR, FREE
from course.parallel.array import part
from course.worlds import run, simulated


def on(ranks, **how):
    return simulated(one_switch(ranks, FREE, FDR), **how)


def test_first_and_last_rows_see_their_window():
    def ends(comm):
        x = part(comm, torch.zeros(1, 1, 12, 3), (1, 1, 2, 1))
        return [[box.intervals[2] for box in boxes] for boxes in end_rows(x, 1)]

    assert run(ends, 2, on=on(2))[0] == [[(-1, 2), (5, 8)], [(4, 7), (10, 13)]]


def test_the_quickest_turn_counts():
    seconds = [3.0, 1.0, 2.0]

    def layer(comm, x, weight, early):
        assert x.shape == (1, 2, 8, 8) and weight.shape == (2, 2, 3, 3) and early
        return None, [0.0, seconds.pop(0)]

    assert run(layer_moments, 1, layer, True, 2, 8, 3, 3, on=on(1)) == [[0.0, 1.0]]


def strip_layer(comm, x, weight, early):
    moments = [comm.clock()]
    pending = [x.begin_fetch(rows) for rows in end_rows(x, 1)]
    ends = None if early else [each.wait() for each in pending]
    moments.append(comm.clock())
    interior = conv2d(x.local, weight, padding=(0, 1))
    moments.append(comm.clock())
    ends = [each.wait() for each in pending]
    moments.append(comm.clock())
    conv2d(ends[0], weight, padding=(0, 1))
    return interior, [*moments, comm.clock()]


def test_on_imagined_cards_the_interior_hides_the_halo():
    late, soon = (imagined_moments(strip_layer, early) for early in (False, True))
    halo_s = 64 * 512 * 4 / 1.25e9
    assert late[1] - late[0] > halo_s > soon[1] - soon[0]
    assert soon[-1] - soon[0] == pytest.approx(late[-1] - late[0] - (late[1] - late[0]), rel=0.05)


def test_a_layer_has_all_answers_in_each_way():
    for across, early in ((2, True), (2, False)):
        shapes = run(square_layer, 4, across, early, on=on(4, device="meta"), checked=False)
        assert set(shapes) == {(1, 64, 512, 512) if early else (1, 64, 256, 256)}


def test_more_cards_are_faster_and_a_slow_cable_is_slower():
    one = square_layer_ms(EDR, 1, True)
    four = {cable: square_layer_ms(cable, 2, False) for cable in (EDR, ETHERNET_10G)}
    assert four[EDR] < four[ETHERNET_10G] < one
