"""What is predicted of a schedule is what the ranks then do."""

import random

import pytest
import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.pipeline import (
    Pipeline,
    gpipe,
    interleaved,
    one_forward_one_backward,
    simulate,
    zero_bubble,
)
from course.parallel.pipeline.timing import peak_live
from course.worlds import run, simulated
from tests.parallel.pipeline.nets import chance_schedule

DRAWING = """\
0F0-0F1-........0B0-----....0B1-----
....1F0-1B0-----1F1-1B1-----"""


def test_a_timing_is_drawn():
    assert str(simulate(one_forward_one_backward(2, 2))) == DRAWING


def test_messages_and_unequal_stages_take_their_time():
    timing = simulate(gpipe(2, 1), [1.0, 3.0], [2.0, 4.0], 0.5)
    spans = [(str(step), *times) for row in timing.rows for step, *times in row]
    assert spans == [("0F0", 0.0, 1.0), ("0B0", 9.0, 11.0), ("1F0", 1.5, 4.5), ("1B0", 4.5, 8.5)]
    assert (timing.seconds, timing.busy_s, timing.gaps_s) == (11.0, [3.0, 7.0], [8.0, 0.0])
    halves = simulate(zero_bubble(1, 1), 1.0, 3.0, weight=1.0)
    assert [end - start for _, start, end in halves.rows[0]] == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("times", [[1.0], -1.0])
def test_wrong_times_are_refused(times):
    with pytest.raises(ValueError, match="2 stages have 2 times of 0 s or more"):
        simulate(gpipe(2, 1), times)


class Product(nn.Module):
    """A second forward, a second for each half of backward."""

    def __init__(self, device):
        super().__init__()
        self.linear = nn.Linear(8, 8, device=device)

    def forward(self, *xs):
        return self.linear(sum(xs[1:], xs[0]))


def a_second_a_product(operation, flops, nbytes, device):
    return float(operation in ("mm", "addmm"))


def measured(comm, schedule):
    net = [Product(comm.device) for _ in range(schedule.stages)]
    pipeline = Pipeline(net, comm, schedule, lambda out: out.mean())
    x = torch.ones(3 * schedule.micro_batches, 8, device=comm.device, requires_grad=True)
    pipeline.step(x)
    return pipeline.timing(), pipeline.peak_live


def required_as_simulated(schedule, device):
    ranks = len(schedule.rows)
    on = simulated(one_switch(ranks, FREE, NDR), device=device, charge=a_second_a_product)
    results, predicted = run(measured, ranks, schedule, on=on, timeout=1000), simulate(schedule)
    timing = results[0][0]
    assert timing.bubble == pytest.approx(predicted.bubble, abs=1e-3)
    for mine, theirs in zip(timing.rows, predicted.rows, strict=True):
        assert [span.step for span in mine] == [span.step for span in theirs]
        for a, b in zip(mine, theirs):
            assert a[1:] == pytest.approx(b[1:], abs=1e-3)
    assert [live for _, live in results] == predicted.peak_live == timing.peak_live


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("schedule", [
    gpipe(4, 8), one_forward_one_backward(4, 8), interleaved(4, 8, 2), zero_bubble(4, 8),
    zero_bubble(4, 8, 2),
], ids=["gpipe", "1f1b", "interleaved", "h1", "h2"])  # fmt: skip
def test_the_bubble_that_is_measured_is_that_of_the_formula(schedule, device):
    """And so is each step's beginning and end, and the most micro-batches that were kept."""
    required_as_simulated(schedule, device)


def test_any_table_takes_the_time_that_is_predicted():
    draw = random.Random(1)
    for _ in range(8):
        required_as_simulated(chance_schedule(draw), "cpu")


def test_live_micro_batches_are_counted_to_the_end_of_their_backward():
    row = zero_bubble(2, 3).rows[1]
    assert " ".join(map(str, row)) == "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"
    assert peak_live(row) == 2
