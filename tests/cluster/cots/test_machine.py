"""What a recorded step takes on a machine, and which assumption matters."""

import pytest

from course.cluster.cots.machine import (
    ACHIEVED,
    ASSUMPTIONS,
    CABLES,
    DEFAULT,
    Machine,
    products_only,
)
from course.cluster.cots.network import record_step
from course.cluster.fabric import coates_2013
from course.cluster.hardware import ETHERNET_1G, ETHERNET_10G, FDR, PCIE_3
from course.comm.transport import Envelope
from course.learning.nine_layers import Geometry, Plan
from course.worlds import simulated
from course.worlds.simulator.recording import Compute, Post, Recording, Send, Wait


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
    assert "server 7 → switch" in links
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
    crossed = [sum(link.bytes for link in report.links if link.link.endswith("switch"))
               for report in (row, square)]  # fmt: skip
    assert crossed[1] < crossed[0]


def test_what_fits_one_server_needs_no_squares(recordings):
    square, row = (Machine(squares=squares, per_server=16).report(recordings[plan(8)])
                   for squares in (True, False))  # fmt: skip
    assert square.seconds == row.seconds


def test_a_grid_without_squares_is_refused(recordings):
    with pytest.raises(ValueError, match="4 x 4 cannot be cut into squares of 8"):
        Machine(per_server=8, squares=True).report(recordings[plan(8)])


def exchange_between_servers():
    """Eight cards: products, what is done number by number, and messages that products hide."""
    recording, long = Recording(8), Envelope(nbytes=40_000_000)
    for rank, events in enumerate(recording.events):
        other = (rank + 4) % 8
        product = Compute("bmm", 1e10, 1_000_000)
        events += [product, Compute("mul", 0, 10**9), Send(0, other, long), Post(1, other, long)]
        events += [product, Wait(0), Wait(1)]
    return recording


def test_both_sides_of_an_assumption_differ():
    recording = exchange_between_servers()
    for assumption, machines in (ASSUMPTIONS | CABLES).items():
        one, other = (machine.report(recording).seconds for machine in machines)
        assert one != other, assumption
