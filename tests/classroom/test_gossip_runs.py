"""What ranks hold round by round, rounds of a graph, and who is late."""

import pytest
import torch

from course.classroom.gossip_runs import by_matrix, rounds_of, watched, work_and
from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE, GTX_680
from course.collectives import all_reduce
from course.parallel.gossip import topology
from course.worlds import run, simulated

START = torch.tensor([[0.0, 4.0], [2.0, 8.0]])


def on(ranks, card=FREE, **how):
    return simulated(one_switch(ranks, card, FDR), **how)


def add_step(comm, x, step):
    x += step


def test_every_round_is_kept_and_knows_its_number():
    first, second = run(watched, 2, START, add_step, 3, on=on(2))
    assert first.tolist() == [[0, 4], [0, 4], [1, 5], [3, 7]]
    assert second[0].tolist() == [2, 8] and len(second) == 4


def test_a_round_mixes_by_the_matrix():
    matrix = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    found = torch.stack(run(watched, 2, START.double(), by_matrix(matrix), 2, on=on(2)))
    assert torch.allclose(found[:, 1], matrix @ START.double())
    assert torch.allclose(found[:, 2], matrix @ matrix @ START.double())


def test_a_thousandth_is_left_after_the_rounds_of_a_graph():
    matrix, rounds = topology.metropolis(topology.ring_graph(8)), rounds_of(topology.ring_graph(8))
    second = torch.linalg.eigvalsh(matrix)[:-1].abs().max()
    assert second**rounds <= 1e-3 < second ** (rounds - 1)


def test_a_clock_counts_work_and_waiting_in_ms():
    world = {"on": on(3, GTX_680, slow={1: 50}, device="meta"), "checked": False}
    alone = run(work_and(lambda comm, x: None), 3, **world)
    together = run(work_and(all_reduce), 3, **world)
    flops = 2 * 1000**3
    assert alone[0] == pytest.approx(1e3 * flops / GTX_680.flops_per_s, rel=0.2)
    assert alone[1] > 10 * alone[0] and min(together) >= alone[1]
