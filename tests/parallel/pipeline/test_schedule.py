"""A schedule is its text, and torch's own validator reads that text."""

import random

import pytest
from torch.distributed.pipelining import schedules as torchs

from course.parallel.pipeline import (
    INPUT,
    Schedule,
    gpipe,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)
from course.parallel.pipeline.step import Step
from tests.parallel.pipeline.nets import chance_schedule

NAMED = {
    "gpipe": gpipe(3, 4),
    "1f1b": one_forward_one_backward(4, 8),
    "few": one_forward_one_backward(4, 2),
    "interleaved": interleaved(4, 8, 2),
    "h1": zero_bubble(4, 8),
    "h2": zero_bubble(3, 6, 2),
}


def test_its_text_is_the_table():
    schedule = one_forward_one_backward(2, 2)
    assert str(schedule) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"
    assert repr(schedule) == "<schedule of 2 micro-batches through 2 stages on 2 ranks>"
    draw = random.Random(0)
    for other in [*NAMED.values(), *(chance_schedule(draw) for _ in range(20))]:
        again = Schedule.of(str(other), other.takes)
        assert (again.rows, again.takes) == (other.rows, other.takes)


@pytest.mark.parametrize("name", NAMED)
def test_torch_accepts_the_same_table(name):
    """Its check of the order of computing, its sends and receives for it, and its dry run."""
    schedule = NAMED[name]
    actions = {rank: [torchs._Action.from_str(word) for word in line.split(",")]
               for rank, line in enumerate(str(schedule).splitlines())}  # fmt: skip
    sizes = len(schedule.rows), schedule.stages, schedule.micro_batches
    assert torchs._validate_schedule(actions, *sizes) == schedule.rank_of
    with_messages = torchs._add_send_recv(actions, schedule.rank_of.get, schedule.stages)
    torchs._simulate_comms_compute(with_messages, schedule.rank_of.get, schedule.stages)


def test_what_a_step_needs():
    schedule = gpipe(4, 2, {3: (2, 0), 1: (0, INPUT)})
    needs = {text: set(map(str, schedule.needs(Step.of(text)))) for text in ("3F1", "0B1", "1F0")}
    assert needs == {"3F1": {"2F1", "0F1"}, "0B1": {"0F1", "1B1", "3B1"}, "1F0": {"0F0"}}
    assert schedule.targets(0) == [1, 3]
    assert interleaved(2, 2, 2).own_stages(1) == [1, 3]
    assert set(map(str, zero_bubble(2, 1).needs(Step.of("0I0")))) == {"0F0", "1I0"}
