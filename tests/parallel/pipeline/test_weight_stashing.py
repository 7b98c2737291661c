"""PipeDream: every backward has its forward's weights, and its staleness is p - 1 - s."""

import pytest
import torch
from torch.func import functional_call

from course.parallel.pipeline import (
    PipeDream,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)
from course.worlds import run
from tests.parallel.pipeline.nets import batch, net_for, square
from tests.worlds.simulator.clusters import switched

RATE = 0.3


def descent(parameters):
    return torch.optim.SGD(parameters, RATE)


def trained(comm, schedule):
    pipeline = PipeDream(net_for(schedule), comm, schedule, square, descent)
    m = schedule.micro_batches
    losses = [pipeline.step(x, target=y) for x, y in (batch(3 * m), batch(3 * m, 1))]
    weights = {name: p.detach() for name, p in pipeline.parts.named_parameters()}
    told = {number: (stage.staleness, stage.most_versions, len(stage.stash))
            for number, stage in pipeline.stages.items()}  # fmt: skip
    return losses, weights, told, pipeline(batch(3 * m)[0])


def updates_before(schedule, stage, number):
    """How many updates a stage has done before a forward, by the table."""
    row = [step for step in schedule.rows[schedule.rank_of[stage]] if step.stage == stage]
    return sum(step.kind == "B" for step in row[: row.index((stage, "F", number))])


def by_the_formula(schedule):
    """w <- w - rate gradient(w_1 of then, ..., w_n of then): the losses, the last weights."""
    net, m, losses = net_for(schedule), schedule.micro_batches, []
    known = [[dict(part.named_parameters())] for part in net]
    for use in range(2):
        x, y = batch(3 * m, use)
        known = [history[-1:] for history in known]
        losses.append(0.0)
        for number in range(m):
            then = [history[updates_before(schedule, stage, number)]
                    for stage, history in enumerate(known)]  # fmt: skip
            then = [{k: w.detach().requires_grad_() for k, w in each.items()} for each in then]
            rows, out = slice(3 * number, 3 * number + 3), x[3 * number : 3 * number + 3]
            for part, weights in zip(net, then):
                out = functional_call(part, weights, (out,))
            loss = square(out, y[rows])
            loss.backward()
            losses[-1] += loss.item()
            for history, weights in zip(known, then):
                history.append({k: w.detach() - RATE * weights[k].grad
                                for k, w in history[-1].items()})  # fmt: skip
    return losses, [history[-1] for history in known]


@pytest.mark.parametrize("schedule", [
    one_forward_one_backward(4, 9), interleaved(2, 6, 2), one_forward_one_backward(1, 3),
], ids=repr)  # fmt: skip
def test_weights_are_those_of_the_formula(schedule):
    ranks = len(schedule.rows)
    results, (losses, expected) = run(trained, ranks, schedule, on=switched(ranks)), by_the_formula(
        schedule
    )  # fmt: skip
    assert [x.item() for x in results[-1][0]] == pytest.approx(losses, rel=1e-12)
    for _, weights, _, _ in results:
        for name, p in weights.items():
            stage, _, rest = name.partition(".")
            torch.testing.assert_close(p, expected[int(stage)][rest], rtol=1e-12, atol=1e-12)


def test_staleness_and_versions_are_those_of_the_stage():
    p, m = 4, 9
    results = run(trained, p, one_forward_one_backward(p, m), on=switched(p))
    for stage, (_, _, told, _) in enumerate(results):
        staleness, versions, left = told[stage]
        assert staleness == 2 * [min(number, p - 1 - stage) for number in range(m)]
        assert (versions, left) == (p - stage, 0)


def updated_halves(comm):
    PipeDream(net_for(zero_bubble(2, 2)), comm, zero_bubble(2, 2), square, descent)


def test_halves_of_backwards_are_refused():
    with pytest.raises(Exception, match="a schedule of PipeDream has no I and W"):
        run(updated_halves, 2, on=switched(2))
