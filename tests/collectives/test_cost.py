"""What is metered is what the formulas say: bytes and messages of every rank, and steps."""

import math
import re

import pytest
import torch

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
from course.collectives.basic import binomial_tree
from course.comm import Trace, processes, run

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
        all_reduce(comm, floats(elements))
        all_reduce(comm, floats(elements), algorithm="flat")


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
        yield "all_reduce", cost.ring_all_reduce(p, elements, 4)
        yield "all_reduce", cost.flat_all_reduce(p, 4 * elements)


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
    run(every_collective, ranks, sizes, trace=trace, on=processes(oversubscribe=True))
    calls = [event.operation for event in trace.events if event.rank == 0 and event.peer == -1]
    foreseen = list(expected(sizes))
    assert calls == [name for name, _ in foreseen]
    for number, (name, formula) in enumerate(foreseen, start=1):
        assert metered(one_call(trace, number)) == formula[:3], f"{name} #{number}, {sizes}"


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


def test_segments_change_the_number_of_messages_and_nothing_else():
    trace, whole = Trace(), cost.ring_all_reduce(4, 100, 4)
    run(ring_in_segments, 4, 100, 40, trace=trace)  # chunks of 25 elements in pieces of 10, 10, 5
    assert trace.sent_bytes == whole.sent_bytes
    assert trace.sent_messages == [3 * count for count in whole.sent_messages]


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
    ("nbytes", "flat_us", "ring_us", "tree_us"),
    [(1024, "71.2", "70.2", "30.5"), (10**8, "119070.0", "14945.0", "51030.0")],
)
def test_seconds_of_the_worked_example(nbytes, flat_us, ring_us, tree_us):
    """8 ranks, 5 us a message, 12.5 GB/s, 10 ps a byte combined; worked out by hand."""

    def microseconds(*costs):
        return f"{1e6 * sum(c.seconds(ALPHA_S, BETA_S, GAMMA_S) for c in costs):.1f}"

    assert microseconds(cost.flat_all_reduce(8, nbytes)) == flat_us
    assert microseconds(cost.ring_all_reduce(8, nbytes // 4, 4)) == ring_us
    assert microseconds(cost.reduce(8, nbytes), cost.broadcast(8, nbytes)) == tree_us


@pytest.mark.parametrize("p", [2, 3, 8])
def test_seconds_of_equal_parts_as_in_the_literature(p):
    """Thakur, Rabenseifner & Gropp 2005; n is what all parts have together."""
    n = 1000 * p
    one_turn = (p - 1) * ALPHA_S + n * (p - 1) / p * BETA_S
    combining = n * (p - 1) / p * GAMMA_S
    for formula in (cost.scatter, cost.gather, cost.all_gather):
        assert formula([1000] * p).seconds(ALPHA_S, BETA_S, GAMMA_S) == pytest.approx(one_turn)
    seconds = cost.all_to_all([[1000] * p] * p).seconds(ALPHA_S, BETA_S, GAMMA_S)
    assert seconds == pytest.approx(one_turn)
    seconds = cost.reduce_scatter([1000] * p).seconds(ALPHA_S, BETA_S, GAMMA_S)
    assert seconds == pytest.approx(one_turn + combining)
