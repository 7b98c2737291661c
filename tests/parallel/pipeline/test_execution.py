"""What one rank does of a batch, step by step."""

import pytest
import torch
from torch import nn

from course.parallel.pipeline import Pipeline, Schedule, one_forward_one_backward
from course.worlds import RankError, run
from tests.parallel.pipeline.nets import batch, net_for, square
from tests.worlds.simulator.clusters import switched


class Noted(nn.Module):
    def __init__(self, stage, done):
        super().__init__()
        self.linear, self.stage, self.done = nn.Linear(5, 5).double(), stage, done

    def forward(self, x):
        self.done.append(f"{self.stage}F")
        out = self.linear(x)
        if out.requires_grad:
            out.register_hook(lambda slope: self.done.append(f"{self.stage}B"))
        return out


def in_order(comm, text):
    schedule, done = Schedule.of(text), []
    net = [Noted(stage, done) for stage in range(schedule.stages)]
    pipeline = Pipeline(net, comm, schedule, lambda out: out.mean())
    pipeline.step(batch(4)[0])
    trained, kept = list(done), [len(stage.kept) for stage in pipeline.stages.values()]
    done.clear()
    pipeline(batch(4)[0])
    return " ".join(trained), " ".join(done), kept, pipeline.peak_live


def test_the_steps_are_those_of_the_table_in_its_order():
    text = "0F1 0F0 2F1 2F0 2B0 2B1 0B1 0B0\n1F1 1F0 1B0 1B1"
    assert run(in_order, 2, text, on=switched(2)) == [
        ("0F 0F 2F 2F 2B 2B 0B 0B", "0F 0F 2F 2F", [0, 0], 4),
        ("1F 1F 1B 1B", "1F 1F", [0], 2),
    ]


class Refusing(nn.Module):
    def forward(self, x):
        out = x * 2
        if out.requires_grad:
            out.register_hook(self.refuse)
        return out

    def refuse(self, slope):
        raise ArithmeticError("no way back")


def refused(comm):
    schedule = one_forward_one_backward(3, 2)
    net = net_for(schedule)
    net[1] = Refusing()
    Pipeline(net, comm, schedule, square).step(batch(4)[0], target=batch(4)[1])


@pytest.mark.parametrize("imagined", [True, False])
def test_an_error_says_rank_and_step(imagined):
    on = switched(3) if imagined else None
    said = "(?s)rank 1 failed: ArithmeticError: no way back.*rank 1 was in 1B0 of its pipeline's"
    with pytest.raises(RankError, match=said):
        run(refused, 3, on=on, timeout=20)
    assert torch.is_grad_enabled()
