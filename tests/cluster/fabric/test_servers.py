"""Inside a server: what its GPUs share, the rings of a DGX-1, three wirings of Big Sur."""

from collections import Counter

import pytest
import torch

from course.cluster.fabric import (
    DGX_1,
    DGX_1_RINGS,
    DGX_1V,
    DGX_1V_RINGS,
    WIRINGS,
    big_sur,
    dgx_1,
    pcie_tree,
)
from course.cluster.hardware import FREE, NVLINK_1, NVLINK_2, NVLINK_V100, PCIE_3
from course.cluster.inventory import bisection_bytes_per_s
from course.cluster.loads import ring_all_reduce_s
from course.collectives import all_reduce
from course.worlds import run, simulated
from course.worlds.simulator.routes import Routes

MODELS = {"DGX-1": (DGX_1, DGX_1_RINGS, 4), "DGX-1V": (DGX_1V, DGX_1V_RINGS, 6)}


def reduce_much(comm):
    all_reduce(comm, torch.empty(100_000 * comm.size, device=comm.device), segment_bytes=2**30)
    return comm.clock()


def ring_s(graph, numbers):
    """Seconds on the imagined cluster, and by the formula; adding up takes no time."""
    placement = [f"gpu {n}" for n in numbers]
    free = simulated(graph, device="meta", placement=placement, charge=lambda *_: 0.0)
    seconds = max(run(reduce_much, len(placement), on=free, checked=False))
    return seconds, ring_all_reduce_s(graph, placement, 400_000 * len(placement))


def test_the_switches_of_a_pcie_tree_share_their_cables_to_the_cpu():
    graph = pcie_tree(2, 4, FREE)
    assert bisection_bytes_per_s(graph) == PCIE_3.bytes_per_s
    assert graph.degree("cpu") == 2
    seconds, formula = ring_s(graph, range(4))
    assert seconds == pytest.approx(6 * (2 * PCIE_3.latency_s + 4e5 / PCIE_3.bytes_per_s))
    assert formula == pytest.approx(seconds)


@pytest.mark.parametrize("model", MODELS)
def test_a_cube_mesh_uses_all_links_of_each_gpu(model):
    model, _, links = MODELS[model]
    ends = Counter()
    for one, other, cable in model.cables():
        ends[one] += cable.bytes_per_s / model.link.bytes_per_s
        ends[other] += cable.bytes_per_s / model.link.bytes_per_s
    assert ends == dict.fromkeys(range(8), links)


@pytest.mark.parametrize("model", MODELS)
def test_its_rings_use_every_link_once(model):
    model, rings, _ = MODELS[model]
    used = Counter(frozenset(pair) for ring in rings for pair in zip(ring, ring[1:] + ring[:1]))
    assert used == {frozenset((one, other)): round(cable.bytes_per_s / model.link.bytes_per_s)
                    for one, other, cable in model.cables()}  # fmt: skip
    assert all(sorted(ring) == list(range(8)) for ring in rings)


@pytest.mark.parametrize(
    ("model", "ring", "links", "nvlink"),
    [(DGX_1, DGX_1_RINGS[0], 1, NVLINK_1), (DGX_1, DGX_1_RINGS[1], 1, NVLINK_1),
     (DGX_1V, DGX_1V_RINGS[0], 2, NVLINK_2), (DGX_1V, DGX_1V_RINGS[2], 1, NVLINK_2)],
)  # fmt: skip
def test_a_ring_along_nvlinks_takes_what_the_formula_says(model, ring, links, nvlink):
    seconds, formula = ring_s(dgx_1(model), ring)
    expected = 14 * (nvlink.latency_s + 4e5 / (links * nvlink.bytes_per_s))
    assert seconds == pytest.approx(expected, rel=1e-9)
    assert formula == pytest.approx(expected, rel=1e-9)


def test_a_ring_in_the_order_of_numbers_leaves_the_nvlinks_of_a_dgx_1():
    routes, ring = Routes(dgx_1()), range(8)
    steps = {n: len(routes.route(f"gpu {n}", f"gpu {(n + 1) % 8}").links) for n in ring}
    assert steps == {0: 1, 1: 1, 2: 1, 3: 5, 4: 1, 5: 1, 6: 1, 7: 5}
    assert ring_s(dgx_1(), ring)[0] > 1.2 * ring_s(dgx_1(), DGX_1_RINGS[0])[0]


def test_all_nvlinks_of_a_v100():
    assert sum(c.bytes_per_s for a, b, c in DGX_1V.cables() if 5 in (a, b)) == (
        NVLINK_V100.bytes_per_s
    )


@pytest.mark.parametrize(("wiring", "cables"), list(zip(WIRINGS, (5, 4, 3))))
def test_what_lies_between_the_halves_of_big_sur(wiring, cables):
    graph = big_sur(wiring)
    assert len(Routes(graph).devices) == 8
    assert bisection_bytes_per_s(graph) == PCIE_3.bytes_per_s
    seconds, formula = ring_s(graph, (0, 4))
    assert seconds == pytest.approx(2 * (cables * PCIE_3.latency_s + 4e5 / PCIE_3.bytes_per_s))
    assert formula == pytest.approx(seconds)


def test_an_unknown_wiring_is_refused():
    with pytest.raises(ValueError, match="one of two sockets, one socket, cascade, not 'A'"):
        big_sur("A")
