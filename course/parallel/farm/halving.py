"""Successive halving: train all candidates a little, keep the better half, and train it longer.

Source: Jamieson & Talwalkar 2016, «Non-stochastic best arm identification and hyperparameter
optimization», figure 3.  Of an odd number the larger half is kept, so that the last rung is a
choice.
"""

import math
from typing import NamedTuple

from course.comm.counts import required_count
from course.parallel.farm.farm import manage


class Rung(NamedTuple):
    """So many candidates, each of which is trained so many steps further."""

    candidates: int
    steps: int


class Trial(NamedTuple):
    """What a rung made of a candidate, by its number: its loss, inf if it failed, and outcome."""

    candidate: int
    loss: float
    outcome: object


class Halving(NamedTuple):
    """The number of the `best` candidate, its `loss` and `state`, and each rung's trials, the
    better ones first."""

    best: int
    loss: float
    state: object
    rungs: list


def halving_plan(candidates: int, budget: int, eta: int = 2) -> list[Rung]:
    """The rungs: each has an `eta`-th of the candidates of the one before, and at most its equal
    share of the `budget` of steps.

    Raises ValueError for a budget that leaves a candidate without a step.
    """
    left, eta = required_count(candidates, "candidates"), required_count(eta, "eta", least=2)
    counts = [left]
    while counts[-1] > eta:
        counts.append(math.ceil(counts[-1] / eta))
    steps = [budget // (count * len(counts)) for count in counts]
    if steps[0] < 1:
        raise ValueError(
            f"each of {left} candidates is trained a step at least, in {len(counts)} rungs of "
            f"equal budget: that takes {left * len(counts)} steps, and there are {budget}"
        )
    return [Rung(*each) for each in zip(counts, steps)]


def successive_halving(comm, train, candidates, budget: int, *, eta: int = 2, attempts: int = 2):
    """The Halving of `candidates` by a farm of all ranks; None on ranks but 0.

    `train(candidate, state, steps)` trains it further from `state`, None at first, and returns
    (loss, state).  A candidate that raises, or has no finite loss, is behind all others.
    Cost: see `farm`; states travel twice a rung.
    Raises ValueError as `halving_plan` does; RuntimeError if all candidates have failed.
    """
    candidates = list(candidates)
    plan = halving_plan(len(candidates), budget, eta)

    def lead(hand_out):
        survivors, states, rungs = range(len(candidates)), {}, []
        for rung in plan:
            survivors = sorted(survivors[: rung.candidates])
            given = [(candidates[n], states.get(n), rung.steps) for n in survivors]
            rungs.append(_ranked(survivors, hand_out(given)))
            states = {trial.candidate: trial.outcome.value[1] for trial in rungs[-1]
                      if trial.loss < math.inf}  # fmt: skip
            survivors = [trial.candidate for trial in rungs[-1] if trial.candidate in states]
        best = rungs[-1][0]
        return Halving(best.candidate, best.loss, states[best.candidate], rungs)

    return manage(comm, lambda given: train(*given), lead, attempts=attempts)


def _ranked(numbers, outcomes) -> list[Trial]:
    """The trials of a rung, the best first.  Raises RuntimeError if none has a finite loss."""
    trials = []
    for number, outcome in zip(numbers, outcomes):
        loss = math.inf if outcome.error else float(outcome.value[0])
        trials.append(Trial(number, loss if math.isfinite(loss) else math.inf, outcome))
    trials.sort(key=lambda trial: (trial.loss, trial.candidate))
    if trials[0].loss == math.inf:
        told = outcomes[0].error or f"loss {outcomes[0].value[0]}"
        raise RuntimeError(f"no candidate has a finite loss: that of {numbers[0]} ended as {told}")
    return trials
