"""A net of letters on a grid is that of one process; what crosses is counted by pairs."""

import pytest
import torch
from torch import nn

from course.classroom.grid_runs import (
    LARGE,
    LARGE_ROWS,
    fresh_net,
    heads_cut,
    inputs_cut,
    large_step,
    large_weights,
    off,
    outputs_cut,
    sent_between,
    serially,
    train_letters,
)
from course.classroom.steps import megabytes_and_ms
from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.learning.training.letters import Attention
from course.parallel.tensor import tensor_parallel, whole_state_dict
from course.worlds import run, simulated

PLAN = {"*.attention": heads_cut, "*.up": outputs_cut, "*.down": inputs_cut}
TWO = one_switch(2, FREE, FDR)


class Block(nn.Module):
    """Attention and two linear layers, on what comes in."""

    def __init__(self, features, heads):
        super().__init__()
        self.attention = Attention(features, heads)
        self.up, self.down = nn.Linear(features, features), nn.Linear(features, features)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.attention(x))))


def parts(steps):
    ids = torch.arange(steps * 4 * 9).remainder(97).view(steps, 4, 9)
    return [(rows[:, :-1], rows[:, 1:]) for rows in ids]


def cut(comm, steps):
    net = tensor_parallel(fresh_net(Block), comm, PLAN)
    losses = train_letters(net, parts(steps))
    return whole_state_dict(net), losses


def test_a_net_cut_by_the_plan_is_that_of_one_process():
    whole, losses = serially(Block, parts(3))
    states, found = zip(*run(cut, 2, 3, on=simulated(TWO)))
    assert off(whole, states) < 1e-12
    assert found[0] == pytest.approx(losses) and losses[2] < losses[0]


def test_a_net_begins_alike_and_does_not_stay_so():
    start, (after, _) = fresh_net(Block).state_dict(), serially(Block, parts(1))
    assert off(start, [fresh_net(Block).state_dict()]) == 0 < off(start, [start, after])


def test_no_gradient_is_longer_than_the_largest():
    start = fresh_net(Block).state_dict()
    for largest in (0.5, 0.05):
        moved, _ = serially(Block, parts(1), largest)
        squares = [(moved[name] - start[name]).square().sum() for name in start]
        assert float(sum(squares).sqrt()) == pytest.approx(0.1 * largest)  # the rate is 0.1


def test_bytes_are_counted_by_sender_and_receiver():
    def to_the_right(comm, count):
        x, right = torch.zeros(count, dtype=torch.float64), (comm.rank + 1) % comm.size
        comm.exchange(x, right, torch.empty_like(x), (comm.rank - 1) % comm.size)

    expected = torch.tensor([[0, 80, 0], [0, 0, 80], [80, 0, 0]])
    assert torch.equal(sent_between(to_the_right, 3, 10), expected)


def test_a_large_step_sends_neurons_along_tensor_and_gradients_along_data():
    sent = {axis: megabytes_and_ms(2, large_step, Block, PLAN, axes, cluster=TWO)[0]
            for axis, axes in (("tensor", {"data": 1, "tensor": 2}),
                               ("data", {"data": 2, "tensor": 1}))}  # fmt: skip
    neurons = 4 * LARGE_ROWS * LARGE["length"] * LARGE["features"] / 1e6
    assert sent["tensor"] == pytest.approx(4 * LARGE["blocks"] * neurons, rel=1e-3)
    assert sent["data"] == pytest.approx(4 * large_weights(Block) / 1e6, rel=1e-3)
