"""Topologies: graphs, weights and gaps by hand, by closed forms and by powers of the matrix."""

import math

import pytest
import torch

from course.parallel.gossip.topology import (
    Graph,
    check_mixing_matrix,
    complete_graph,
    gossip_cost,
    metropolis,
    random_regular_graph,
    ring_graph,
    spectral_gap,
    star_graph,
    steps_to_agree,
    wheel_graph,
)

DRAWN = (ring_graph, wheel_graph, star_graph, complete_graph)
GAPS = {  # ring, wheel, star, complete
    4: (0.666667, 1.0, 0.25, 1.0),
    8: (0.195262, 0.313255, 0.125, 1.0),
    16: (0.050747, 0.105727, 0.0625, 1.0),
    32: (0.012810, 0.041485, 0.03125, 1.0),
    64: (0.003210, 0.018110, 0.015625, 1.0),
}


def path(p):
    """Ranks in a line: not one of the module's graphs, degrees 1 and 2."""
    return Graph(p, tuple((a, a + 1) for a in range(p - 1)))


def values(ranks, shape, seed=0):
    """What each rank starts with, float64 [ranks, *shape]."""
    return torch.randn(ranks, *shape, generator=torch.Generator().manual_seed(seed)).double()


def mixed(start, matrix, steps):
    """The oracle: power of the matrix times the ranks' values [ranks, ...]."""
    power = torch.linalg.matrix_power(matrix, steps)
    return (power @ start.reshape(len(start), -1)).view(start.shape)


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


# Graphs and weights


def test_neighbours_by_hand():
    assert ring_graph(4).edges == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert ring_graph(4).neighbours == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert star_graph(4).neighbours == [[1, 2, 3], [0], [0], [0]]
    assert wheel_graph(5).neighbours == [[1, 2, 3, 4], [0, 2, 4], [0, 1, 3], [0, 2, 4], [0, 1, 3]]
    assert complete_graph(3).neighbours == [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize("graph", DRAWN)
def test_the_smallest_graphs_have_no_edge_twice(graph):
    assert graph(1) == Graph(1, ())
    assert graph(2) == Graph(2, ((0, 1),))
    assert graph(3) == (
        star_graph(3) if graph is star_graph else Graph(3, ((0, 1), (0, 2), (1, 2)))
    )


@pytest.mark.parametrize(("p", "degree"), [(3, 2), (4, 3), (12, 2), (9, 4), (10, 3), (64, 4)])
def test_a_random_graph_is_regular_connected_and_its_seed_s(p, degree):
    graphs = [random_regular_graph(p, degree, seed) for seed in range(8)]
    assert graphs == [random_regular_graph(p, degree, seed) for seed in range(8)]
    for graph in graphs:
        assert [len(near) for near in graph.neighbours] == [degree] * p
        assert graph.components == [list(range(p))]
    assert len(set(graphs)) == (1 if p == degree + 1 else 8)


def test_weights_by_hand():
    third, quarter = 1 / 3, 1 / 4
    expected = [
        [2 * third, third, 0, 0],
        [third, third, third, 0],
        [0, third, third, third],
        [0, 0, third, 2 * third],
    ]
    assert torch.allclose(metropolis(path(4)), tensor(expected), rtol=0, atol=1e-15)
    assert torch.equal(metropolis(star_graph(4))[0], torch.full((4,), quarter).double())
    assert metropolis(Graph(3, ((1, 0), (0, 1), (2, 1)))).equal(metropolis(path(3)))


@pytest.mark.parametrize("p", [1, 2, 3, 5, 16, 33])
@pytest.mark.parametrize("graph", [*DRAWN, path])
def test_mixing_matrices_are_symmetric_with_rows_of_one(graph, p):
    matrix = metropolis(graph(p))
    assert matrix.equal(matrix.T) and (matrix >= 0).all()
    assert torch.allclose(matrix.sum(dim=1), torch.ones(p).double(), rtol=0, atol=1e-14)


def test_weights_below_zero_may_lead_to_the_mean():
    weights = tensor([[1.2, -0.2], [-0.2, 1.2]]), tensor([[0.75, 0.5, -0.25], [0.5, 0, 0.5],
                                                          [-0.25, 0.5, 0.75]])  # fmt: skip
    with pytest.raises(ValueError, match="eigenvalue of size 1.4"):
        check_mixing_matrix(weights[0])
    with pytest.raises(ValueError, match="eigenvalue of size 1,"):
        check_mixing_matrix(weights[1])
    matrix = tensor([[0.9, 0.3, -0.2], [0.3, 0.4, 0.3], [-0.2, 0.3, 0.9]])
    with pytest.raises(ValueError, match="eigenvalue of size 1.1,"):
        check_mixing_matrix(matrix)
    matrix = tensor([[0.6, 0.5, -0.1], [0.5, 0, 0.5], [-0.1, 0.5, 0.6]])
    assert check_mixing_matrix(matrix) is matrix
    assert torch.linalg.matrix_power(matrix, 99).allclose(torch.full((3, 3), 1 / 3).double())


# How fast: numbers only


@pytest.mark.parametrize("p", GAPS)
def test_spectral_gaps_of_the_table(p):
    gaps = [spectral_gap(metropolis(graph(p))) for graph in DRAWN]
    assert gaps == pytest.approx(GAPS[p], abs=6e-7)


@pytest.mark.parametrize("p", [4, 7, 50, 200])
def test_closed_forms_of_ring_and_star(p):
    assert spectral_gap(metropolis(ring_graph(p))) == pytest.approx(
        2 / 3 * (1 - math.cos(math.tau / p))
    )
    assert spectral_gap(metropolis(star_graph(p))) == pytest.approx(1 / p)


def test_a_random_graph_keeps_its_gap_while_the_ring_s_closes():
    gaps = [spectral_gap(metropolis(random_regular_graph(p, 4, seed=1))) for p in (32, 64, 128)]
    assert min(gaps) > 0.08 > 6 * spectral_gap(metropolis(ring_graph(32)))


def test_a_second_eigenvalue_below_zero_counts_by_its_size():
    assert spectral_gap(tensor([[0.2, 0.8], [0.8, 0.2]])) == pytest.approx(0.4)


@pytest.mark.parametrize(
    "graph", [ring_graph(64), wheel_graph(33), star_graph(20), random_regular_graph(64, 4, 2)]
)
def test_the_distance_to_the_mean_shrinks_by_the_second_eigenvalue(graph):
    matrix, start = metropolis(graph), values(graph.ranks, (5,))
    mean, keep = start.mean(dim=0), 1 - spectral_gap(metropolis(graph))
    steps = steps_to_agree(matrix, 1e-6)
    late, later = (mixed(start, matrix, n) - mean for n in (steps, steps + 10))
    assert late.norm() <= 1e-6 * (start - mean).norm()
    assert float((later.norm() / late.norm()) ** 0.1) == pytest.approx(keep, rel=2e-3)
    assert torch.allclose(mixed(start, matrix, 3).mean(dim=0), mean, rtol=0, atol=1e-14)


@pytest.mark.parametrize("graph", [ring_graph(9), star_graph(6), path(5)])
def test_the_predicted_steps_suffice_and_one_fewer_does_not_for_the_slowest_pattern(graph):
    matrix = metropolis(graph)
    sizes, patterns = torch.linalg.eigh(matrix)
    slowest = patterns[:, sizes.abs().argsort()[-2]]
    steps = steps_to_agree(matrix, 1e-3)
    assert mixed(slowest, matrix, steps).norm() <= 1e-3 < mixed(slowest, matrix, steps - 1).norm()


def test_steps_where_one_suffices_or_none_is_needed():
    assert [steps_to_agree(metropolis(complete_graph(p)), 1e-30) for p in (1, 2, 7)] == [0, 1, 1]
    assert steps_to_agree(metropolis(ring_graph(64)), 1e-3) == 2149


# What it costs


def test_costs_by_hand():
    assert gossip_cost(ring_graph(8), 100).sent_bytes == [200] * 8
    assert gossip_cost(wheel_graph(8), 100).sent_bytes == [700] + [300] * 7
    assert gossip_cost(random_regular_graph(8, 4, seed=0), 100, 3).sent_bytes == [1200] * 8
    sent, messages = [80, 20, 20, 20, 20], [8, 2, 2, 2, 2]
    assert gossip_cost(star_graph(5), 10, 2) == (8, sent, messages, 80, 80, 6)


def test_agreeing_by_gossip_alone_is_dear():
    """64 ranks to a thousandth, in tensors sent by the busiest: 63 by way of a centre."""
    graphs = {
        "ring": ring_graph(64),
        "wheel": wheel_graph(64),
        "star": star_graph(64),
        "complete": complete_graph(64),
    }
    steps = {name: steps_to_agree(metropolis(graph), 1e-3) for name, graph in graphs.items()}
    busiest = {name: max(gossip_cost(graphs[name], 1, steps[name]).sent_bytes) for name in graphs}
    assert steps == {"ring": 2149, "wheel": 378, "star": 439, "complete": 1}
    assert busiest == {"ring": 4298, "wheel": 23814, "star": 27657, "complete": 63}


# What cannot be


HALF = [[0.5, 0.5], [0.5, 0.5]]
BAD_MATRICES = {
    r"row 1 of a mixing matrix sums to 1\.25, not to 1": tensor([[0.5, 0.5], [0.5, 0.75]]),
    "row 0 of a mixing matrix sums to nan, not to 1": tensor([[math.nan, 0.5], [0.5, 0.5]]),
    "row 1 of a mixing matrix sums to inf, not to 1": tensor([[0.5, 0.5], [math.inf, 0.5]]),
    r"must be symmetric, but \[0, 1\] is 0.5 and \[1, 0\] 0.25": tensor([[0.5, 0.5], [0.25, 0.75]]),
    r"a graph in 2 pieces has no common mean to find: \[\[0, 2\], \[1\]\]":
        tensor([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]),
    "a second eigenvalue of size 1, not below 1, never": tensor([[0, 1], [1, 0]]),
    "a second eigenvalue of size 3, not below 1, never": tensor([[-1, 2], [2, -1]]),
    r"is float64 \[ranks, ranks\], not float32 \[2, 2\]": torch.tensor(HALF),
    r"is float64 \[ranks, ranks\], not float64 \[2, 3\]": tensor([[1, 0, 0], [0, 1, 0]]),
    r"is float64 \[ranks, ranks\], not float64 \[4\]": torch.ones(4).double(),
    r"is float64 \[ranks, ranks\], not float64 \[0, 0\]": torch.ones(0, 0).double(),
    "a mixing matrix is a tensor, not list": HALF,
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD_MATRICES)
def test_what_is_no_mixing_matrix(sentence):
    with pytest.raises(ValueError, match=sentence):
        spectral_gap(BAD_MATRICES[sentence])


def test_graphs_that_cannot_be():
    with pytest.raises(ValueError, match="a graph needs at least 1 rank, not 0"):
        ring_graph(0)
    with pytest.raises(ValueError, match="an edge joins two of 3 ranks, not 0 and 3"):
        metropolis(Graph(3, ((0, 3),)))
    with pytest.raises(ValueError, match="an edge joins two of 3 ranks, not 1 and 1"):
        gossip_cost(Graph(3, ((1, 1),)), 8)
    with pytest.raises(ValueError, match=r"a graph in 2 pieces .*: \[\[0, 1\], \[2, 3\]\]"):
        metropolis(Graph(4, ((0, 1), (2, 3))))
    for p, degree in ((5, 3), (4, 4), (6, 1)):
        with pytest.raises(ValueError, match=f"{p} ranks cannot have {degree} neighbours each"):
            random_regular_graph(p, degree, seed=0)


def test_tolerances_that_cannot_be():
    for tolerance in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="a tolerance is a fraction between 0 and 1"):
            steps_to_agree(tensor(HALF), tolerance)
