"""Gossip: the ranks do what powers of the matrix say, as fast and at the cost predicted."""

import itertools
import math
import random

import pytest
import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE, GTX_680
from course.collectives import all_reduce, cost
from course.comm import CommMismatch, Trace
from course.parallel.flat_parameters import broadcast_module
from course.parallel.gossip.gossip import DecentralisedSGD, gossip
from course.parallel.gossip.topology import (
    complete_graph,
    gossip_cost,
    metropolis,
    random_regular_graph,
    ring_graph,
    star_graph,
    steps_to_agree,
    wheel_graph,
)
from course.worlds import RankError, processes, run, simulated
from tests.collectives.test_cost import one_call
from tests.parallel.gossip.test_topology import (
    BAD_MATRICES,
    DRAWN,
    HALF,
    mixed,
    path,
    tensor,
    values,
)

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
        assert not {kind: error for kind, error in errors.items() if not error <= 15}


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


@pytest.mark.parametrize(
    "graph", [*(draw(9) for draw in DRAWN), random_regular_graph(10, 4, 0), ring_graph(1)]
)
def test_an_imagined_cluster_takes_the_seconds_predicted(graph):
    world = simulated(one_switch(graph.ranks, FREE, FDR))
    case = values(graph.ranks, (501,)), [(metropolis(graph), 3)]
    run(gossiped, graph.ranks, *case, on=world, checked=False)
    foreseen = gossip_cost(graph, 8 * 501, 3).seconds(2 * FDR.latency_s, 1 / FDR.bytes_per_s)
    assert world.report.seconds == pytest.approx(foreseen, rel=1e-9)


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


# With a gradient: decentralised SGD


class Fit(nn.Module):
    """A frozen and an unused parameter beside those of a net of two layers, float64."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.frozen = nn.Linear(5, 4), nn.Linear(4, 4)
        self.last, self.unused = nn.Linear(4, 2), nn.Linear(2, 3)
        self.frozen.requires_grad_(False)
        self.double()

    def forward(self, x):
        return self.last(self.frozen(torch.tanh(self.first(x))))

    def losses(self, x, y):
        return ((self(x) - y) ** 2).mean()


RATE, STEPS = 0.1, 20


def rows(rank, step):
    """The batch of a rank at a step: [6, 5] and [6, 2]."""
    batch = values(6, (7,), seed=100 * rank + step)
    return batch[:, :5], batch[:, 5:]


def trained(module):
    return torch.cat([p.detach().flatten() for p in module.parameters() if p.requires_grad])


def decentralised(comm, matrices, steps):
    """The weights [matrices, elements] after training, from a model of this rank's own."""
    ends = []
    for matrix in matrices:
        net = Fit(seed=comm.rank)
        gossiping = DecentralisedSGD(net, comm, matrix)
        for step in range(steps):
            net.zero_grad()
            net.losses(*rows(comm.rank, step)).backward()
            gossiping.step(RATE)
        ends.append(gossiping.finish().clone())
        assert torch.equal(ends[-1], trained(net))
    return torch.stack(ends)


def serially(matrix, steps, start=None):
    """The same recursion for all ranks in one process: weights [ranks, elements]."""
    nets = [Fit() for _ in matrix]
    held = torch.stack([trained(net) for net in nets]) if start is None else start
    for step in range(steps):
        gradients = []
        for rank, (net, mine) in enumerate(zip(nets, held)):
            parameters = [p for p in net.parameters() if p.requires_grad]
            nn.utils.vector_to_parameters(mine, parameters)
            found = torch.autograd.grad(net.losses(*rows(rank, step)), parameters,
                                        allow_unused=True, materialize_grads=True)  # fmt: skip
            gradients.append(torch.cat([g.flatten() for g in found]))
        held = matrix @ held - RATE * torch.stack(gradients)
    return held


def assert_trained(matrices, steps, **where):
    """Run training on as many ranks as the matrices have, and compare with the oracle."""
    ends = torch.stack(run(decentralised, len(matrices[0]), matrices, steps, **where), dim=1)
    for end, matrix in zip(ends, matrices, strict=True):
        assert torch.allclose(end, serially(matrix, steps), rtol=0, atol=1e-12)
    return ends


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_twenty_steps_of_training_are_the_serial_ones(ranks):
    assert_trained([metropolis(graph(ranks)) for graph in (ring_graph, star_graph)], STEPS)


@pytest.mark.parametrize(
    "graph", [ring_graph(9), wheel_graph(9), random_regular_graph(9, 4, seed=1)]
)
def test_training_on_nine_imagined_ranks(graph):
    assert_trained([metropolis(graph)], 5, on=simulated(one_switch(9, GTX_680, FDR)))


def test_the_mean_moves_by_the_mean_gradient_whatever_the_graph():
    matrices = [metropolis(path(6)), metropolis(complete_graph(6))]
    apart, alike = assert_trained(matrices, 1, on=simulated(one_switch(6, GTX_680, FDR)))
    assert torch.allclose(apart.mean(dim=0), alike.mean(dim=0), rtol=0, atol=1e-14)
    start = values(6, (trained(Fit()).numel(),))
    apart, alike = (serially(matrix, 1, start) for matrix in matrices)
    assert (apart[0] - alike[0]).abs().max() > 1e-3
    moved = serially(torch.eye(6).double(), 1, start).mean(dim=0)
    for ends in (apart, alike):
        assert torch.allclose(ends.mean(dim=0), moved, rtol=0, atol=1e-14)


def test_training_costs_one_exchange_a_step_and_one_more():
    for graph in (ring_graph(4), star_graph(4)):
        trace, matrix = Trace(), metropolis(graph)
        run(decentralised, 4, [matrix], 5, trace=trace, on=simulated(one_switch(4, FREE, FDR)))
        nbytes = trained(Fit()).nbytes
        start, world = Trace(), simulated(one_switch(4, FREE, FDR))
        run(lambda comm: broadcast_module(comm, Fit()), 4, trace=start, on=world)
        foreseen = gossip_cost(graph, nbytes, steps=6).sent_bytes
        assert trace.sent_bytes == [a + b for a, b in zip(start.sent_bytes, foreseen)]


def finished(comm, matrix):
    decentralised(comm, [matrix], 3)
    return comm.meter.sent_bytes


def test_once_it_is_finished_nothing_is_under_way():
    trace, world = Trace(), simulated(one_switch(4, FREE, FDR))
    assert run(finished, 4, metropolis(ring_graph(4)), trace=trace, on=world) == trace.sent_bytes


def two_kinds(comm, matrix):
    """What is refused: weights of two dtypes, weights for other ranks."""
    mixed_up, told = Fit(), []
    mixed_up.last.float()
    for net, graph in ((mixed_up, matrix), (Fit(), metropolis(ring_graph(5)))):
        with pytest.raises(ValueError) as caught:
            DecentralisedSGD(net, comm, graph)
        told.append(str(caught.value))
    return told


def test_training_that_cannot_be():
    told = run(two_kinds, 2, metropolis(ring_graph(2)))
    assert told[1] == [
        "weights in one tensor are of one dtype and device, not float32 on cpu and float64 on cpu",
        "rank 1: weights for 5 ranks, but 2 mix",
    ]


def seconds_a_gradient(operation, flops, nbytes, device):
    return 1e-3 if operation == "addmm" else 0.0


@pytest.mark.parametrize("seed", range(20))
def test_the_end_of_a_rank_ends_the_others(seed):
    draw = random.Random(seed)
    lost, second = draw.randrange(5), draw.uniform(0, 0.03)
    world = simulated(one_switch(5, GTX_680, FDR), charge=seconds_a_gradient, dead={lost: second})
    with pytest.raises(RankError) as caught:
        run(decentralised, 5, [metropolis(ring_graph(5))], STEPS, on=world)
    assert caught.value.rank == lost
    others = set(caught.value.failures) - {lost}
    assert all("PeerLost: rank" in caught.value.failures[rank] for rank in others)
    assert others


# What cannot be


@pytest.mark.parametrize("sentence", BAD_MATRICES)
def test_what_is_no_mixing_matrix(sentence):
    with pytest.raises(ValueError, match=sentence):
        gossip(NoneButTwo(), torch.ones(2), BAD_MATRICES[sentence], 1)


class NoneButTwo:
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
