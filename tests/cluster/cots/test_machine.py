"""What a recorded step takes on a machine, and which assumption matters."""

import pytest

from course.cluster.cots.machine import (
    ACHIEVED,
    ASSUMPTIONS,
    DEFAULT,
    Machine,
    Point,
    curve,
    products_only,
    tornado,
)
from course.cluster.cots.network import record_step, weights
from course.cluster.fabric import coates_2013
from course.cluster.hardware import ETHERNET_1G, ETHERNET_10G, FDR, PCIE_3
from course.learning.nine_layers import Geometry, Plan
from course.worlds import simulated
from course.worlds.simulator.recording import Compute, Recording


def plan(maps):
    return Plan(3, 24, None, (Geometry(5, 1, maps, 0.1, 2, 1),) * 3)


@pytest.fixture(scope="module")
def recordings():
    return {plan(2): record_step(plan(2), 1, 4), plan(8): record_step(plan(8), 16, 4)}


def test_a_machine_replays_on_its_cluster(recordings):
    recording = recordings[plan(8)]
    itself = simulated(coates_2013(4, 4, ACHIEVED)).replay(recording)
    assert DEFAULT.report(recording).seconds == itself.seconds


def test_the_links_inside_and_between_servers_are_the_machines(recordings):
    links = {link.link for link in Machine(per_server=2).report(recordings[plan(8)]).links}
    assert "server 7 → infiniband" in links
    assert "gpu 15 → server 7" in links


def test_slower_networks_are_slower(recordings):
    took = [Machine(network=network).report(recordings[plan(8)]).seconds
            for network in (FDR, ETHERNET_10G, ETHERNET_1G)]  # fmt: skip
    assert took == sorted(took) and took[0] < took[2]


def test_every_field_of_a_machine_counts(recordings):
    recording = recordings[plan(8)]
    base = DEFAULT.report(recording).seconds
    slow = Machine(network=ETHERNET_1G)
    for other, than in (
        (Machine(device=ACHIEVED._replace(flops_per_s=1e10)), base),
        (Machine(inside=PCIE_3._replace(latency_s=1e-3)), base),
        (Machine(charge=products_only), base),
        (slow._replace(overlap=False), slow.report(recording).seconds),
        (slow._replace(bytes=2.0), slow.report(recording).seconds),
        (slow._replace(squares=True), slow.report(recording).seconds),
    ):
        assert other.report(recording).seconds != than, other


def test_squares_keep_more_of_a_tiles_neighbours_in_its_server():
    """16 ranks in a 4 x 4 grid, four to a server: rows have one neighbour outside for every rank
    above and below, squares half as many."""
    recording = record_step(plan(2), 16, 1)
    row, square = (Machine(squares=squares).report(recording) for squares in (False, True))
    crossed = [sum(link.bytes for link in report.links if link.link.endswith("infiniband"))
               for report in (row, square)]  # fmt: skip
    assert crossed[1] < crossed[0]


def test_what_fits_one_server_needs_no_squares(recordings):
    square, row = (Machine(squares=squares, per_server=16).report(recordings[plan(8)])
                   for squares in (True, False))  # fmt: skip
    assert square.seconds == row.seconds
    assert len(curve(recordings, Machine(squares=True))) == 2


def test_a_grid_without_squares_is_refused(recordings):
    with pytest.raises(ValueError, match="4 x 4 cannot be cut into squares of 8"):
        Machine(per_server=8, squares=True).report(recordings[plan(8)])


def test_speed_up_counts_weights():
    first, last = Point(1, 100, 2.0), Point(64, 6000, 2.5)
    assert last.speedup(first) == 48
    assert first.speedup(first) == 1


def test_a_curve_has_a_point_for_each_network(recordings):
    points = curve(recordings)
    assert [(point.cards, point.weights) for point in points] == [
        (1, weights(plan(2))), (16, weights(plan(8)))]  # fmt: skip
    assert points[1].seconds == DEFAULT.report(recordings[plan(8)]).seconds


def test_computing_alone_scales_perfectly():
    """Equal shares without a message: p cards do p times as much in the same time."""
    recordings = {}
    for side, cards in ((24, 1), (48, 4)):
        recording = recordings[plan(1)._replace(side=side)] = Recording(cards)
        for events in recording.events:
            events.append(Compute("bmm", 1e12, 0))
    points = curve(recordings)
    assert points[0].seconds == points[1].seconds == 1.0
    assert points[1].speedup(points[0]) == points[1].weights / points[0].weights


def test_the_tornado_has_the_widest_bar_first(recordings):
    bars = tornado(recordings)
    assert {bar.assumption for bar in bars} == set(ASSUMPTIONS)
    assert all(bar.low <= bar.high for bar in bars)
    widths = [bar.high - bar.low for bar in bars]
    assert widths == sorted(widths, reverse=True)
    named = {bar.assumption: bar for bar in bars}["10 Gb/s or 400 Gb/s"]
    both = [curve(recordings, machine) for machine in ASSUMPTIONS["10 Gb/s or 400 Gb/s"]]
    assert [named.low, named.high] == sorted(b.speedup(a) for a, b in both)
