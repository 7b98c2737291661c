"""What is metered is what the formulas say: bytes and messages of every rank, and steps."""

import math
import random
import re

import pytest
import torch

from course.cluster.fabric import one_switch, pcie_tree
from course.cluster.hardware import FDR, FREE
from course.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    cost,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from course.collectives.all_reduce import ALGORITHMS
from course.collectives.ring import chunk_lengths, ring_steps
from course.collectives.tree import binomial_tree
from course.comm import Trace
from course.worlds import processes, run, simulated

EQUAL, UNEVEN = [6, 6, 6, 6, 6], [5, 0, 7, 1, 3]
ALPHA_S, BETA_S, GAMMA_S = 5e-6, 1 / 12.5e9, 10e-12  # 5 us, 12.5 GB/s, 10 ps/B


def every_collective(comm, sizes):
    """Every collective for every root, in an order in which `expected` lists their costs."""
    p, rank = comm.size, comm.rank
    x, parts = floats(sizes[rank]), [floats(size) for size in sizes]
    for root in range(p):
        broadcast(comm, floats(13), root)
        reduce(comm, floats(13), root=root)
        scatter(comm, x, parts if rank == root else None, root)
        gather(comm, x, parts if rank == root else None, root)
    all_gather(comm, parts, x)
    reduce_scatter(comm, x, parts)
    all_to_all(comm, [floats(sizes[src] + rank) for src in range(p)],
               [floats(sizes[rank] + dst) for dst in range(p)])  # fmt: skip
    for elements in (0, 1, 23, p):
        for algorithm in ALGORITHMS:
            all_reduce(comm, floats(elements), algorithm=algorithm)


def expected(sizes):
    """Names and costs of the calls of `every_collective`, float32."""
    p, parts = len(sizes), [4 * size for size in sizes]
    for root in range(p):
        yield "broadcast", cost.broadcast(p, 4 * 13, root)
        yield "reduce", cost.reduce(p, 4 * 13, root)
        yield "scatter", cost.scatter(parts, root)
        yield "gather", cost.gather(parts, root)
    yield "all_gather", cost.all_gather(parts)
    yield "reduce_scatter", cost.reduce_scatter(parts)
    yield "all_to_all", cost.all_to_all([[part + 4 * dst for dst in range(p)] for part in parts])
    for elements in (0, 1, 23, p):
        for algorithm in ALGORITHMS:
            yield f"all_reduce by {algorithm}", foreseen(algorithm, range(p), elements)


def foreseen(algorithm, nodes, elements):
    """The cost of an all-reduce of float32 on ranks on these nodes."""
    formula = getattr(cost, f"{algorithm}_all_reduce")
    if algorithm == "hierarchical":
        return formula(nodes, elements, 4)
    if algorithm in ("ring", "halving_doubling"):
        return formula(len(nodes), elements, 4)
    return formula(len(nodes), 4 * elements)


def floats(size):
    return torch.ones(size)


def one_call(trace, number):
    """The part of a trace that belongs to collective call `number`."""
    part = Trace()
    part.add(trace.ranks, [e for e in trace.events if re.search(rf"#{number}\b", e.call)])
    return part


def metered(trace):
    return trace.steps, trace.sent_bytes, trace.sent_messages


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("sizes", [EQUAL, UNEVEN], ids=["equal", "uneven"])
def test_every_call_costs_what_its_formula_says(ranks, sizes):
    trace, sizes = Trace(), sizes[:ranks]
    run(every_collective, ranks, sizes, trace=trace, on=processes(range(ranks), oversubscribe=True))
    calls = [event.operation for event in trace.events if event.rank == 0 and event.peer == -1]
    formulas = list(expected(sizes))
    assert calls == [name.partition(" ")[0] for name, _ in formulas]
    for number, (name, formula) in enumerate(formulas, start=1):
        steps, *sent = metered(one_call(trace, number))
        assert sent == list(formula[1:3]), f"{name} #{number}, {sizes}"
        if not (name.endswith("recursive_doubling") and ranks in (3, 5)):  # who is early, is luck
            assert steps == formula.steps, f"{name} #{number}, {sizes}"


def tree(comm, root):
    broadcast(comm, floats(3), root)


@pytest.mark.parametrize(("ranks", "root"), [(3, 0), (4, 2)])
def test_a_broadcast_takes_the_rounds_of_its_tree(ranks, root):
    trace = Trace()
    run(tree, ranks, root, trace=trace)
    rounds = {(number, src, dst) for number, pairs in enumerate(binomial_tree(ranks, root), start=1)
              for src, dst in pairs}  # fmt: skip
    assert {(m.step, m.src, m.dst) for m in trace.messages} == rounds


def ring_in_segments(comm, elements, segment_bytes):
    all_reduce(comm, floats(elements), segment_bytes=segment_bytes)


@pytest.mark.parametrize("ranks, elements", [(4, 100), (4, 101), (3, 5), (3, 0), (2, 41)])
def test_segments_change_the_number_of_messages_and_nothing_else(ranks, elements):
    trace, whole = Trace(), cost.ring_all_reduce(ranks, elements, 4)
    run(ring_in_segments, ranks, elements, 40, trace=trace)  # of 10 elements
    pieces = [max(1, -(-length // 10)) for length in chunk_lengths(elements, ranks)]
    cut = [sum(pieces[step.send] for step in ring_steps(ranks, rank)) for rank in range(ranks)]
    assert trace.sent_bytes == whole.sent_bytes and trace.sent_messages == cut
    if elements == 100:  # chunks of 25 elements in pieces of 10, 10, 5
        assert cut == [3 * count for count in whole.sent_messages]


def ring_of(comm, elements):
    all_reduce(comm, torch.zeros(elements, device=comm.device))


@pytest.mark.parametrize("kilobytes, between, within", [
    (511, 1, 1), (513, 2, 1), (1500, 4, 1), (2048, 4, 1), (2049, 4, 2), (8193, 5, 5),
])  # fmt: skip
def test_between_nodes_a_chunk_goes_in_up_to_four_segments(kilobytes, between, within):
    """Of 256 KB to 2 MB; within a node in segments of 2 MB."""
    apart, joined = one_switch(2, FREE, FDR), pcie_tree(1, 2, FREE)
    for cluster, segments in ((apart, between), (joined, within)):
        for elements in (512 * kilobytes, 512 * kilobytes - 6):  # not in equal fourths
            trace, world = Trace(), simulated(cluster, device="meta")
            run(ring_of, 2, elements, on=world, trace=trace)
            assert trace.sent_messages == [2 * segments] * 2


def test_the_ring_sends_what_baidu_s_sends():
    """5 ranks, 23 elements: 36.8 on average, 36 to 38 because the chunks are uneven."""
    assert cost.ring_all_reduce(5, 23, 1).sent_bytes == [36, 37, 38, 37, 36]
    assert sum([36, 37, 38, 37, 36]) / 5 == 2 * 23 * 4 / 5


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8, 64])
def test_no_ring_beats_the_lower_bound_and_equal_chunks_attain_it(p):
    assert cost.ring_all_reduce(p, 3 * p, 4).sent_bytes == [2 * 12 * (p - 1)] * p
    uneven = cost.ring_all_reduce(p, 3 * p + 1, 4)
    assert sum(uneven.sent_bytes) == 2 * 4 * (3 * p + 1) * (p - 1)


@pytest.mark.parametrize("p", range(1, 20))
def test_trees_have_as_many_levels_as_the_formulas_and_reach_everyone_once(p):
    assert len(binomial_tree(p)) == cost.levels(p) == math.ceil(math.log2(p))
    for root in range(0, p, 3):
        receivers = [dst for pairs in binomial_tree(p, root) for _, dst in pairs]
        assert sorted([root, *receivers]) == list(range(p))
        children = [sum(src == r for pairs in binomial_tree(p, root) for src, _ in pairs)
                    for r in range(p)]  # fmt: skip
        assert cost.broadcast(p, 10, root).sent_messages == children


@pytest.mark.parametrize(
    ("nbytes", "flat_us", "tree_us", "doubling_us", "ring_us", "halving_us"),
    [(1024, "71.2", "30.5", "15.3", "70.2", "30.2"),
     (10**8, "119070.0", "51030.0", "27015.0", "14945.0", "14905.0")],
)  # fmt: skip
def test_seconds_of_the_worked_example(nbytes, flat_us, tree_us, doubling_us, ring_us, halving_us):
    """8 ranks, 5 us a message, 12.5 GB/s, 10 ps a byte combined; worked out by hand."""

    def microseconds(formula):
        """One alpha a step, as the literature counts."""
        return (
            f"{1e6 * formula._replace(overlapped_alphas=0).seconds(ALPHA_S, BETA_S, GAMMA_S):.1f}"
        )

    assert microseconds(cost.flat_all_reduce(8, nbytes)) == flat_us
    assert microseconds(cost.tree_all_reduce(8, nbytes)) == tree_us
    assert microseconds(cost.recursive_doubling_all_reduce(8, nbytes)) == doubling_us
    assert microseconds(cost.ring_all_reduce(8, nbytes // 4, 4)) == ring_us
    assert microseconds(cost.halving_doubling_all_reduce(8, nbytes // 4, 4)) == halving_us


@pytest.mark.parametrize("p", [2, 3, 8])
def test_seconds_of_equal_parts_as_in_the_literature(p):
    """Thakur, Rabenseifner & Gropp 2005; n is what all parts have together."""
    n = 1000 * p
    one_turn = (p - 1) * ALPHA_S + n * (p - 1) / p * BETA_S
    combining = n * (p - 1) / p * GAMMA_S
    for formula in (cost.scatter, cost.gather, cost.all_gather):
        one_by_one = formula([1000] * p)._replace(overlapped_alphas=0)
        assert one_by_one.seconds(ALPHA_S, BETA_S, GAMMA_S) == pytest.approx(one_turn)
    seconds = cost.all_to_all([[1000] * p] * p).seconds(ALPHA_S, BETA_S, GAMMA_S)
    assert seconds == pytest.approx(one_turn)
    seconds = cost.reduce_scatter([1000] * p).seconds(ALPHA_S, BETA_S, GAMMA_S)
    assert seconds == pytest.approx(one_turn + combining)


def by_nodes(comm, lengths, through_memory):
    if not through_memory:
        comm._transport.windows = None, None
    for elements in lengths:
        all_reduce(comm, floats(elements), algorithm="hierarchical")


@pytest.mark.parametrize("nodes", [(0, 1, 0, 1), (0, 1, 1, 1), (0, 0, 1, 2, 2), (0,) * 3])
def test_by_nodes_each_sends_what_the_formula_says(nodes):
    world, lengths = processes(nodes=nodes, oversubscribe=True), (0, 1, 23)
    for through_memory in (True, False):
        trace = Trace()
        run(by_nodes, len(nodes), lengths, through_memory, trace=trace, on=world)
        for number, elements in enumerate(lengths, start=1):
            steps, *sent = metered(one_call(trace, number))
            formula = cost.across_nodes if through_memory else cost.hierarchical_all_reduce
            foreseen = formula(nodes, elements, 4)
            assert sent == list(foreseen[1:3]), (through_memory, elements)
            if through_memory:  # else ranks of small nodes come early, by luck
                assert steps == foreseen.steps


def test_nodes_of_one_rank_are_a_ring_and_one_node_sends_nothing_across():
    ring = cost.ring_all_reduce(5, 23, 4)
    assert cost.hierarchical_all_reduce(range(5), 23, 4) == ring
    assert cost.across_nodes([0] * 5, 23, 4)[:4] == (0, [0] * 5, [0] * 5, 0)


def test_what_leaves_a_node_is_what_a_ring_of_nodes_sends():
    """4 nodes of 4: 2n (N-1)/N across, and 2n (g-1)/g inside, all ranks of a node together."""
    nodes, n = [rank // 4 for rank in range(16)], 16_000
    assert sum(cost.across_nodes(nodes, n, 1).sent_bytes[:4]) == 2 * n * 3 / 4
    assert sum(cost.inside_nodes(nodes, n, 1).sent_bytes[:4]) == 4 * 2 * n * 3 / 4


@pytest.mark.parametrize("p", [3, 5, 6, 7, 12])
def test_other_numbers_than_powers_of_two(p):
    """Halving-doubling still sends the least there is to send; doubling pays two steps for it."""
    halving = cost.halving_doubling_all_reduce(p, 8 * p, 1)
    assert halving.sent_bytes == [2 * 8 * (p - 1)] * p and halving.path_bytes == 2 * 8 * (p - 1)
    assert halving.steps == 2 * math.ceil(math.log2(p))
    doubling = cost.recursive_doubling_all_reduce(p, 10)
    assert doubling.steps == math.floor(math.log2(p)) + 2
    assert sum(doubling.sent_messages) == 2 ** math.floor(math.log2(p)) * math.floor(
        math.log2(p)
    ) + 2 * (p - 2 ** math.floor(math.log2(p)))


def noisy(alpha, beta, wild=0.0):
    """Messages of eight lengths, 20 of each: up to 5 % late, a share of them very late."""
    generator = random.Random(7)
    for nbytes in [4**k for k in range(2, 13)]:
        for _ in range(20):
            late = 30 if generator.random() < wild else 1 + 0.05 * generator.random()
            yield nbytes, (alpha + nbytes * beta) * late


@pytest.mark.parametrize("wild", [0.0, 0.3])
def test_a_fit_finds_the_line_whatever_a_third_of_the_messages_did(wild):
    found = cost.fit(noisy(20e-6, 1 / 3e9, wild))
    assert found.alpha_s == pytest.approx(20e-6 * 1.025, rel=0.03)
    assert found.beta_s_per_byte == pytest.approx(1.025 / 3e9, rel=0.03)
    for value, (low, high) in (found[::2], found[1::2]):
        assert low <= value <= high < 1.2 * low


def test_a_fit_of_exact_times_is_exact_and_has_no_spread():
    found = cost.fit([(n, 5e-6 + n * 8e-9) for n in (0, 1000, 10**6)])
    assert found[:2] == pytest.approx((5e-6, 8e-9))
    assert found[2:] == ((found.alpha_s,) * 2, (found.beta_s_per_byte,) * 2)
    with pytest.raises(ValueError, match=r"two lengths at least, not of \[8\]"):
        cost.fit([(8, 1.0), (8, 2.0)])


def test_bandwidths_as_nccl_tests_has_them():
    assert cost.algbw(10**9, 0.5) == 2e9
    assert cost.busbw("all_reduce", 8, 10**9, 0.5) == 2e9 * 14 / 8
    assert cost.busbw("all_gather", 8, 10**9, 0.5) == 2e9 * 7 / 8
    assert cost.busbw("broadcast", 8, 10**9, 0.5) == 2e9
