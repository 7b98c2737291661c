"""Gossip: the ranks do what powers of the matrix say, as fast and at the cost foretold."""

import itertools
import math

import pytest
import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE, GTX_680
from course.collectives import all_reduce, cost
from course.comm import CommMismatch, Trace, processes, run
from course.comm.simulator import simulated
from course.parallel.gossip import (
    Graph,
    complete_graph,
    gossip,
    gossip_cost,
    metropolis,
    random_regular_graph,
    ring_graph,
    spectral_gap,
    star_graph,
    steps_to_agree,
    wheel_graph,
)
from tests.collectives.test_cost import one_call

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
        assert graph.pieces == [list(range(p))]
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
def test_the_foretold_steps_suffice_and_one_fewer_does_not_for_the_slowest_pattern(graph):
    matrix = metropolis(graph)
    sizes, patterns = torch.linalg.eigh(matrix)
    slowest = patterns[:, sizes.abs().argsort()[-2]]
    steps = steps_to_agree(matrix, 1e-3)
    assert mixed(slowest, matrix, steps).norm() <= 1e-3 < mixed(slowest, matrix, steps - 1).norm()


def test_steps_where_one_suffices_or_none_is_needed():
    assert [steps_to_agree(metropolis(complete_graph(p)), 1e-30) for p in (1, 2, 7)] == [0, 1, 1]
    assert steps_to_agree(metropolis(ring_graph(64)), 1e-3) == 2149


# On ranks


def gossiped(comm, start, cases):
    """The ends [cases, ...] of this rank's values, for each matrix and number of steps."""
    ends = []
    for matrix, steps in cases:
        ends.append(start[comm.rank].clone())
        gossip(comm, ends[-1], matrix, steps)
    return torch.stack(ends)


def assert_mixed(start, cases, **where):
    """Run gossip on as many ranks as there are values, and compare with the oracle."""
    ends = torch.stack(run(gossiped, len(start), start, cases, **where), dim=1)
    for end, (matrix, steps) in zip(ends, cases, strict=True):
        assert torch.allclose(end, mixed(start, matrix, steps), rtol=0, atol=1e-12)
    return ends


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_do_what_the_power_of_the_matrix_does_and_agree_on_the_exact_mean(ranks):
    matrices = [metropolis(graph(ranks)) for graph in (*DRAWN, path)]
    cases = [*itertools.product(matrices, (0, 1, 7)),
             *((matrix, steps_to_agree(matrix, 1e-13)) for matrix in matrices)]  # fmt: skip
    start = values(ranks, (3, 5))
    ends = assert_mixed(start, cases)[-len(matrices) :]
    assert torch.allclose(ends, start.mean(dim=0).expand_as(ends), rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", [wheel_graph(16), random_regular_graph(16, 4, seed=3)])
def test_sixteen_imagined_ranks(graph):
    start, matrix = values(16, (3,)), metropolis(graph)
    world = simulated(one_switch(16, GTX_680, FDR))
    assert_mixed(start, [(matrix, 6)], on=world)


def many_kinds(comm, matrix):
    """For each dtype, shape and layout: the largest error, in roundings of the dtype."""
    errors = {}
    shapes, dtypes = [(), (0,), (1,), (3, 5)], [torch.float16, torch.bfloat16, torch.float32]
    for dtype, shape, strided in itertools.product(dtypes, shapes, (False, True)):
        start = values(comm.size, shape).to(dtype)
        parent = torch.full((*shape, 3), 9.0, dtype=dtype)
        x = parent[..., 1] if strided else torch.empty(shape, dtype=dtype)
        x.copy_(start[comm.rank])
        gossip(comm, x.requires_grad_() if not strided else x, matrix, 2)
        off = (x.detach() - mixed(start.double(), matrix, 2)[comm.rank]).abs().sum()
        beside = (parent[..., ::2] == 9).all() and not x.grad_fn
        errors[dtype, shape, strided] = float(off / torch.finfo(dtype).eps) if beside else math.inf
    return errors


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_float_shape_and_layout(ranks):
    for errors in run(many_kinds, ranks, metropolis(ring_graph(ranks))):
        assert not {kind: error for kind, error in errors.items() if error > 15}


def halves(comm):
    x = torch.full((3,), 60_000.0, dtype=torch.float16)
    gossip(comm, x, metropolis(complete_graph(3)), 4)
    return x.tolist()


def test_large_halves_do_not_overflow():
    assert run(halves, 3) == [[60_000.0] * 3] * 3


def test_sums_of_halves_are_not_rounded_at_every_term():
    start, world = torch.ones(14, 3).bfloat16(), simulated(one_switch(14, GTX_680, FDR))
    ends = torch.stack(run(gossiped, 14, start, [(metropolis(complete_graph(14)), 3)], on=world))
    assert (ends == 1).all()


@pytest.mark.parametrize(("checked", "nodes"), [(True, (0, 0, 0)), (False, (0, 1, 2))])
def test_messages_longer_than_any_buffer(checked, nodes):
    case = metropolis(complete_graph(3)), 2
    assert_mixed(values(3, (600_011,)), [case], checked=checked, on=processes(nodes=nodes))


# What it costs


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_bytes_and_messages_are_degree_times_steps(ranks):
    trace, graphs = Trace(), [graph(ranks) for graph in (*DRAWN, path)]
    cases = [(metropolis(graph), 5) for graph in graphs]
    run(gossiped, ranks, values(ranks, (3, 5)), cases, trace=trace)
    for number, graph in enumerate(graphs, start=1):
        metered, foreseen = one_call(trace, number), gossip_cost(graph, nbytes=8 * 15, steps=5)
        assert metered.sent_bytes == foreseen.sent_bytes
        assert metered.sent_messages == foreseen.sent_messages
        assert metered.steps >= foreseen.steps


def test_costs_by_hand():
    assert gossip_cost(ring_graph(8), 100).sent_bytes == [200] * 8
    assert gossip_cost(wheel_graph(8), 100).sent_bytes == [700] + [300] * 7
    assert gossip_cost(random_regular_graph(8, 4, seed=0), 100, 3).sent_bytes == [1200] * 8
    sent, messages = [80, 20, 20, 20, 20], [8, 2, 2, 2, 2]
    assert gossip_cost(star_graph(5), 10, 2) == (8, sent, messages, 80, 80, 6)


@pytest.mark.parametrize(
    "graph", [*(draw(9) for draw in DRAWN), random_regular_graph(10, 4, 0), ring_graph(1)]
)
def test_an_imagined_cluster_takes_the_seconds_foretold(graph):
    world = simulated(one_switch(graph.ranks, FREE, FDR))
    case = values(graph.ranks, (501,)), [(metropolis(graph), 3)]
    run(gossiped, graph.ranks, *case, on=world, checked=False)
    foreseen = gossip_cost(graph, 8 * 501, 3).seconds(2 * FDR.latency_s, 1 / FDR.bytes_per_s)
    assert world.record.seconds == pytest.approx(foreseen, rel=1e-9)


def central(comm, start):
    x = start[comm.rank].clone()
    all_reduce(comm, x, "mean", algorithm="flat")
    return x


def test_a_centre_sends_fewer_bytes_in_all_but_most_of_them_are_its_own():
    trace, start = Trace(), values(4, (15,))
    run(central, 4, start, trace=trace)
    assert trace.sent_bytes == gossip_cost(star_graph(4), 120).sent_bytes  # as one step on a star
    centre, around = cost.flat_all_reduce(64, 1), gossip_cost(ring_graph(64), 1)
    assert (sum(centre.sent_bytes), max(centre.sent_bytes)) == (126, 63)
    assert (sum(around.sent_bytes), max(around.sent_bytes)) == (128, 2)


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
    with pytest.raises(ValueError, match=sentence):
        gossip(None_but_two(), torch.ones(2), BAD_MATRICES[sentence], 1)


class None_but_two:
    rank, size = 0, 2


def refused(comm, cases):
    """The sentence for each call; all ranks refuse before any message."""
    sentences = []
    for x, matrix, steps in cases:
        with pytest.raises(ValueError) as caught:
            gossip(comm, x, matrix, steps)
        sentences.append(str(caught.value))
    return sentences


def test_calls_that_cannot_be():
    x, two = torch.ones(2), tensor(HALF)
    cases = [(x, metropolis(ring_graph(3)), 1), (x, two, -1), (x, two, 1.5), (x.int(), two, 1),
             ([1.0], two, 1), (torch.ones(1).expand(2), two, 1)]  # fmt: skip
    sentences = run(refused, 2, cases)[1]
    expected = [
        "rank 1: weights for 3 ranks, but 2 mix",
        "rank 1: steps is a whole number, 0 or more, not -1",
        "rank 1: steps is a whole number, 0 or more, not 1.5",
        "rank 1: gossip averages floating-point numbers, not int32 [2]",
        "rank 1: what is averaged must be a tensor, not list [1.0]",
    ]
    assert sentences[:5] == expected
    assert "expanded tensor (float32 [2]" in sentences[5]


DISAGREEMENTS = {  # what rank 1 alone says; ranks 0 and 2 gossip one step on a ring of float32 [2]
    r"float32 \[3\]": (torch.ones(3), metropolis(ring_graph(3)), 1),
    r"float64 \[2\]": (torch.ones(2).double(), metropolis(ring_graph(3)), 1),
    "steps 2": (torch.ones(2), metropolis(ring_graph(3)), 2),
    "weights ": (torch.ones(2), metropolis(star_graph(3)), 1),
}


def disagree(comm, odds):
    usual = (torch.ones(2), metropolis(ring_graph(3)), 1)
    for number, (words, odd) in enumerate(odds.items(), start=1):
        said = rf"^rank 1 is in gossip #{number} .*{words}.*; ranks 0, 2 are in gossip"
        with pytest.raises(CommMismatch, match=said):
            gossip(comm, *(odd if comm.rank == 1 else usual))


def test_ranks_that_differ_hear_of_it():
    run(disagree, 3, DISAGREEMENTS)


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


def test_tolerances_and_weights_that_lead_nowhere():
    for tolerance in (0, 1, -0.1, math.nan):
        with pytest.raises(ValueError, match="a tolerance is a fraction between 0 and 1"):
            steps_to_agree(tensor(HALF), tolerance)
    with pytest.raises(ValueError, match="a second eigenvalue of size 1, not below 1, never"):
        steps_to_agree(tensor([[0, 1], [1, 0]]), 0.1)
