"""Bytes and messages of a pipeline are those of the formula."""

import random

import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.pipeline import Pipeline, one_forward_one_backward
from course.parallel.pipeline.cost import cost
from course.worlds import run, simulated
from tests.parallel.pipeline import nets
from tests.parallel.pipeline.nets import batch, net_for


def counted(comm, schedules):
    """Bytes and messages sent in each of two steps: of uneven micro-batches, of even ones."""
    found = []
    for schedule in schedules:
        pipeline, rows = Pipeline(net_for(schedule), comm, schedule, nets.square), []
        for count in (2 * schedule.micro_batches + 1, 2 * schedule.micro_batches):
            before = comm.meter.sent_bytes, comm.meter.sent_messages
            x, y = batch(count)
            pipeline.step(x, target=y)
            rows += [comm.meter.sent_bytes - before[0], comm.meter.sent_messages - before[1]]
        found.append(rows)
    return found


def outputs(schedule, rows):
    """What each stage gives for each micro-batch: as shapes."""
    m = schedule.micro_batches
    sizes = [rows // m + (number < rows % m) for number in range(m)]
    return [[torch.empty(size, nets.WIDTH, dtype=torch.float64, device="meta", requires_grad=True)
             for size in sizes] for _ in range(schedule.stages)]  # fmt: skip


def test_what_is_sent_is_what_it_costs():
    draw = random.Random(3)
    schedules = [one_forward_one_backward(3, 4)]
    schedules += [nets.chance_schedule(draw, 3) for _ in range(8)]
    schedules = [s for s in schedules if all(row_end(s, stage) for stage in range(s.stages))]
    results = run(counted, 3, schedules, checked=False, timeout=30)
    for number, schedule in enumerate(schedules):
        m = schedule.micro_batches
        uneven = cost(schedule, outputs(schedule, 2 * m + 1))
        even = cost(schedule, outputs(schedule, 2 * m), first=False)
        for rank, result in enumerate(results):
            assert result[number] == [
                uneven[0][rank],
                uneven[1][rank],
                even[0][rank],
                even[1][rank],
            ]


def row_end(schedule, stage):
    """The last micro-batch forward: not 0, which has the row more, and so another text."""
    row = schedule.rows[schedule.rank_of[stage]]
    return [step.micro_batch for step in row if step[:2] == (stage, "F")][-1]


def test_of_stages_in_a_row_it_is_the_formula_in_words():
    m, n, schedule = 4, 2 * nets.WIDTH * 8, one_forward_one_backward(3, 4)
    sent_bytes, messages = cost(schedule, outputs(schedule, 8), first=False)
    assert sent_bytes == [m * (n + 8), m * (2 * n + 8), m * n]
    assert messages == [2 * m, 3 * m, m]
    first = cost(schedule, outputs(schedule, 8))
    assert [a - b for a, b in zip(first[1], messages)] == [1, 1, 0]


def large(comm, width):
    schedule = one_forward_one_backward(comm.size, 2 * comm.size)
    net = {comm.rank: nn.Linear(width, width, device=comm.device)}
    pipeline = Pipeline(net, comm, schedule, lambda out: out.square().mean())
    pipeline.step(torch.empty(32 * schedule.micro_batches, width, device=comm.device))
    before = comm.meter.sent_bytes
    pipeline.step(torch.empty(32 * schedule.micro_batches, width, device=comm.device))
    return comm.meter.sent_bytes - before


def test_shapes_alone_send_as_many_bytes():
    """8 stages of 256 million weights each, of which nobody has the memory."""
    ranks, width = 8, 16384
    n = 32 * width * 4
    found = run(large, ranks, width, on=simulated(one_switch(ranks, FREE, NDR), device="meta"))
    assert found == [2 * ranks * ((r < ranks - 1) * (n + 8) + (r > 0) * n) for r in range(ranks)]
