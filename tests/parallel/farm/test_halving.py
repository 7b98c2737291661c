"""Successive halving: the plan by hand, the paper's budget, and the digits of part III."""

import itertools
import math

import pytest

from course.learning.training.digits import digit_split
from course.parallel.farm.digit_task import Candidate, DigitTask
from course.parallel.farm.halving import halving_plan, successive_halving
from course.worlds import RankError, processes, run
from tests.worlds.simulator.clusters import switched


def test_plans_by_hand():
    assert halving_plan(8, 240) == [(8, 10), (4, 20), (2, 40)]
    assert halving_plan(5, 30) == [(5, 2), (3, 3), (2, 5)]
    assert halving_plan(9, 60, eta=3) == [(9, 3), (3, 10)]
    assert halving_plan(1, 7) == [(1, 7)] and halving_plan(2, 7) == [(2, 3)]


def test_plans_keep_to_their_budget_in_as_many_rungs_as_the_paper():
    for candidates, eta in itertools.product(range(1, 40), (2, 3, 4)):
        plan = halving_plan(candidates, 1000, eta)
        assert sum(rung.candidates * rung.steps for rung in plan) <= 1000
        assert eta ** len(plan) >= candidates > eta ** (len(plan) - 1) or candidates == 1
        assert plan[-1].candidates <= eta


def test_what_cannot_be_planned():
    with pytest.raises(ValueError, match="that takes 24 steps, and there are 23"):
        halving_plan(8, 23)
    with pytest.raises(ValueError, match="candidates is a whole number, 1 or more, not 0"):
        halving_plan(0, 10)
    with pytest.raises(ValueError, match="eta is a whole number, 2 or more, not 1"):
        halving_plan(3, 10, eta=1)


def falling(candidate, state, steps):
    """A loss that falls to its limit, from the steps done so far; some candidates fail."""
    done = (state or 0) + steps
    if candidate == "bad":
        raise ArithmeticError("no such rate")
    return (math.nan if candidate == "nan" else candidate + 1 / done), done


def halved(comm, candidates, budget, train=falling):
    return successive_halving(comm, train, candidates, budget)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_best_is_found_and_those_that_fail_are_behind(ranks):
    candidates = [0.5, "bad", 0.1, 0.3, "nan", 0.2]
    found, *others = run(halved, ranks, candidates, 60)
    assert (found.best, others) == (2, [None] * (ranks - 1))
    assert [[trial.candidate for trial in rung] for rung in found.rungs] == [
        [2, 5, 3, 0, 1, 4], [2, 5, 3], [2, 5],
    ]  # fmt: skip
    assert found.state == 3 + 6 + 10 and found.loss == 0.1 + 1 / 19
    assert found.rungs[0][4].outcome.error == "ArithmeticError: no such rate"


def test_when_all_fail_it_says_so():
    with pytest.raises(RankError, match="no candidate has a finite loss: that of 0 ended as Arith"):
        run(halved, 2, ["bad", "nan"], 9, timeout=5)
    assert run(halved, 1, ["nan", 0.5, 0.4], 9)[0].best == 2
    with pytest.raises(RankError, match="that takes 6 steps, and there are 5"):
        run(halved, 2, [1, 2, 3], 5, timeout=5)


RATES = [0.001, 0.01, 0.1, 0.5, 3.0, 100.0]


def serially(task, candidates, budget):
    """The same by a loop."""
    survivors, states, losses = list(range(len(candidates))), {}, {}
    for count, steps in halving_plan(len(candidates), budget):
        survivors = sorted(survivors[:count])
        for n in survivors:
            losses[n], states[n] = task(candidates[n], states.get(n), steps)
        survivors.sort(key=lambda n: (losses[n] if math.isfinite(losses[n]) else math.inf, n))
    return survivors[0], losses[survivors[0]]


@pytest.mark.parametrize("world", [None, "imagined"])
def test_rates_for_the_digits(world):
    """The same choice by a loop, by two workers and on the imagined cluster."""
    # Ranks have fewer threads than the loop: they may add in another order.
    task, candidates = DigitTask(digit_split()), [Candidate(rate) for rate in RATES]
    best, loss = serially(task, candidates, 360)
    found = run(halved, 3, candidates, 360, task, on=switched(3) if world else None)[0]
    assert found.loss == pytest.approx(loss, rel=1e-4)
    assert found.best == best and 0.01 < RATES[best] < 3
    assert found.loss < 0.3 and found.state.steps == 20 + 40 + 60
    assert {trial.outcome.rank for rung in found.rungs for trial in rung} == {1, 2}


class Killer:
    """Falling, but rank 1 ends in its `when`-th task."""

    def __init__(self, when):
        self.when = when

    def __call__(self, *given):
        import os

        self.when -= 1
        if self.when < 0 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os._exit(3)
        return falling(*given)


@pytest.mark.parametrize("when", range(3))  # of six tasks one of two workers has a third
def test_a_rank_that_dies_in_any_rung_changes_nothing(tmp_path, when):
    killer = Killer(when)
    killer.mark = str(tmp_path / "died")
    with pytest.raises(RankError, match="exited with status 3") as caught:
        run(halved, 3, [0.5, 0.4, 0.1, 0.3], 40, killer, on=processes(grace_s=math.inf), timeout=5)
    found = caught.value.values[0]
    assert found == run(halved, 1, [0.5, 0.4, 0.1, 0.3], 40)[0]._replace(rungs=found.rungs)
