import pytest
import torch

from course.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from course.collectives.basic import pairwise_steps
from course.collectives.ring import all_gather_steps, reduce_scatter_steps, ring_steps
from course.comm import Trace
from course.worlds import run


def test_the_steps_of_four_ranks():
    """A row a step, a column a rank: the chunk it sends, with a + where it will be added."""
    by_rank = [ring_steps(4, rank) for rank in range(4)]
    staircase = """
        0+ 1+ 2+ 3+
        3+ 0+ 1+ 2+
        2+ 3+ 0+ 1+
        1  2  3  0
        0  1  2  3
        3  0  1  2"""
    assert drawn(by_rank) == staircase
    for rank, steps in enumerate(by_rank):
        assert [step.receive for step in steps] == [step.send for step in by_rank[rank - 1]]


def drawn(by_rank):
    rows = [" ".join(f"{step.send}{'+' if step.add else ' '}" for step in row).rstrip()
            for row in zip(*by_rank, strict=True)]  # fmt: skip
    margin = "\n" + 8 * " "
    return margin + margin.join(rows)


def test_one_rank_has_no_steps():
    assert ring_steps(1, 0) == []


def reduce_ones(comm, elements):
    all_reduce(comm, torch.ones(elements))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_plan_is_what_runs(ranks):
    trace = Trace()
    run(reduce_ones, ranks, 10, trace=trace)
    planned = {(number, rank, (rank + 1) % ranks, step.send)
               for rank in range(ranks)
               for number, step in enumerate(ring_steps(ranks, rank), start=1)}  # fmt: skip
    assert {(m.step, m.src, m.dst, m.tag) for m in trace.messages} == planned


def call_once(comm, collective):
    x, parts = torch.ones(3), [torch.ones(3) for _ in range(comm.size)]
    outs = [torch.empty(3) for _ in range(comm.size)]
    collective(
        comm, *{all_gather: (outs, x), reduce_scatter: (x, parts)}.get(collective, (outs, parts))
    )


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("collective, plan", [
    (all_gather, all_gather_steps), (reduce_scatter, reduce_scatter_steps),
])  # fmt: skip
def test_parts_go_round_the_ring_as_planned(collective, plan, ranks):
    trace = Trace()
    run(call_once, ranks, collective, trace=trace)
    rounds = {(number, rank, (rank + 1) % ranks) for rank in range(ranks)
              for number, _ in enumerate(plan(ranks, rank), start=1)}  # fmt: skip
    assert {(m.step, m.src, m.dst) for m in trace.messages} == rounds


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_partners_of_all_to_all_are_as_planned(ranks):
    trace = Trace()
    run(call_once, ranks, all_to_all, trace=trace)
    planned = {(number, rank, step.send) for rank in range(ranks)
               for number, step in enumerate(pairwise_steps(ranks, rank), start=1)}  # fmt: skip
    assert {(m.tag, m.src, m.dst) for m in trace.messages} == planned


@pytest.mark.parametrize("p", range(1, 9))
def test_everybody_ends_with_its_own_part_or_with_all(p):
    """Whose terms are in each part of each rank, followed through both plans."""
    plans = [reduce_scatter_steps(p, rank) for rank in range(p)]
    terms = [[{rank} for _ in range(p)] for rank in range(p)]
    followed(plans, terms)
    assert [terms[rank][rank] for rank in range(p)] == [set(range(p))] * p
    has = [[{rank} if part == rank else set() for part in range(p)] for rank in range(p)]
    followed([all_gather_steps(p, rank) for rank in range(p)], has)
    assert has == [[{part} for part in range(p)]] * p


def followed(plans, parts):
    for row in zip(*plans, strict=True):
        sent = [set(parts[rank][step.send]) for rank, step in enumerate(row)]
        for rank, step in enumerate(row):
            before, came = parts[rank][step.receive], sent[rank - 1]
            assert not before & came
            parts[rank][step.receive] = before | came if step.add else came
