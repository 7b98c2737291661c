"""A budget, what of it a plan overruns, and a search among plans within it."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from course.cluster.failover.interval import optimal, system_mtbf
from course.cluster.planning.plan import Plan, check_memory
from course.cluster.planning.prediction import Assumptions, Estimate, estimate, save_seconds


class Budget(NamedTuple):
    """The most that a training may take: money, the power of its servers, days."""

    money: float
    watts: float
    days: float


def overruns(told: Estimate, budget: Budget) -> list[str]:
    """A sentence for each part of the budget that a estimate is above: by how much."""
    return [
        f"{name} {has:,.{digits}f} of {most:,.{digits}f}: {has - most:,.{digits}f} too much"
        for name, has, most, digits in (
            ("money", told.money, budget.money, 0),
            ("kW", told.watts / 1e3, budget.watts / 1e3, 1),
            ("days", told.days, budget.days, 1),
        )
        if has > most
    ]


class Candidate(NamedTuple):
    """A plan that fits its cards, with RESERVE free, and what it takes."""

    plan: Plan
    estimate: Estimate


MOST_MICRO_BATCHES = 8  # that a search tries


def search(network, nodes, assumed: Assumptions, rows: int) -> list[Candidate]:
    """Plans that pass `check_memory`, of `nodes` {NodeType: numbers of servers}, by price: every
    way to cut the ranks by powers of two, with up to 8 micro-batches, the optimizer sharded where
    it does not fit otherwise, and the best checkpoint interval.

    What it does not try: uneven tensor groups, other schedules, recomputed activations, sharded
    weights, more micro-batches.  What it does not know is what `estimate` leaves out.
    """
    found = []
    for kind, count in ((kind, count) for kind, counts in nodes.items() for count in counts):
        for plan in _plans(network, kind, count, rows):
            plan = plan.changed(interval_s=best_interval(plan, assumed))
            found.append(Candidate(plan, estimate(plan, assumed)))
    return sorted(found, key=lambda each: each.estimate.money)


def best_interval(plan, assumed) -> float:
    """Seconds of work between checkpoints with the least waste."""
    mtbf_s = system_mtbf(assumed.node_mtbf_s, plan.nodes)
    return optimal(save_seconds(plan, assumed), mtbf_s)


def _plans(network, kind, count, rows) -> Iterator[Plan]:
    """All that can be, and fit."""
    powers = [2**k for k in range(11)]
    few = [power for power in powers if power <= MOST_MICRO_BATCHES]
    for data, pipeline, tensor, micro_batches in itertools.product(powers, powers, powers, few):
        if data * pipeline * tensor != count * kind.cards:
            continue
        ways = data, pipeline, tensor, rows, micro_batches
        for sharded in (False, True)[: 1 + (data > 1)]:
            with contextlib.suppress(ValueError):
                plan = Plan(network, kind, count, *ways, sharded)
                check_memory(plan)
                yield plan
                break
