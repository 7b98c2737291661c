"""What was placed is executed: the module's values, with the schedule's messages."""

import pytest
import torch
from torch import nn

from course.cluster.hardware import FDR
from course.cluster.placement import execute, heft, schedule, traced
from course.comm import Trace
from course.worlds import RankError
from tests.cluster.placement.machines import pair, unequal
from tests.cluster.placement.nets import SMALL, Random, small


def dealt(graph, count):
    """Every operation, or all that share a weight, on another device than the one before it."""
    return {name: f"gpu {number % count}" for number, group in enumerate(graph.groups())
            for name in group}  # fmt: skip


def sent(trace, placed):
    """[(source, target, bytes)] of all messages of a trace, by device."""
    found = [(placed.devices[each.rank], placed.devices[each.peer], each.bytes)
             for each in trace.events if each.operation == "send"]  # fmt: skip
    return sorted(found)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_a_network_on_ranks_is_the_network_and_sends_what_its_schedule_says(name, count):
    module, x = small(name)
    graph, machine, trace = traced(module, x), pair(FDR, count), Trace()
    placed = schedule(graph, dealt(graph, count), machine)
    y = execute(placed, x, trace=trace)
    torch.testing.assert_close(y, module(x).detach(), rtol=0, atol=1e-12)
    assert not y.requires_grad
    assert sent(trace, placed) == sorted(each[1:3] + each[4:5] for each in placed.transfers)
    assert sum(trace.sent_messages) == placed.sent_messages
    assert sum(trace.sent_bytes) == placed.sent_bytes and (placed.sent_bytes > 0) == (count > 1)


@pytest.mark.parametrize("seed", range(6))
def test_so_is_a_random_one_with_answers_in_parts_and_tied_layers(seed):
    module, x = Random(seed).double(), torch.randn(3, 4, dtype=torch.float64)
    graph, trace = traced(module, x), Trace()
    placed = schedule(graph, dealt(graph, 3), pair(FDR, 3))
    last, others = execute(placed, x, trace=trace)
    wanted, all_wanted = module(x)
    for one, other in zip([last, *others], [wanted, *all_wanted], strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=0, atol=1e-12)
    assert sum(trace.sent_messages) == placed.sent_messages
    assert sum(trace.sent_bytes) == placed.sent_bytes


class Kinds(nn.Module):
    """Answers that are no plain tensors, and tensors that are no weights."""

    def __init__(self):
        super().__init__()
        self.look, self.remember = nn.Embedding(10, 8), nn.LSTM(8, 8, batch_first=True)
        self.attend, self.plain = nn.MultiheadAttention(8, 2, batch_first=True), torch.ones(8)
        self.guess = nn.Linear(8, 10)
        self.guess.weight = self.look.weight

    def forward(self, words, scale=2):
        x = self.look(words) + torch.arange(words.shape[1], device=words.device)[:, None]
        y, (last, _) = self.remember(x * scale + self.plain)
        z, none = self.attend(y, y, y, need_weights=False)
        return self.guess(z + x), {"last": last, "none": none, "positive": z > 0}, words, self.plain


def test_answers_of_any_kind_pass():
    torch.manual_seed(0)
    net, words = Kinds().eval(), torch.randint(10, (2, 5))
    graph = traced(net, words)
    placed = schedule(graph, dealt(graph, 3), pair(FDR, 3))
    torch.testing.assert_close(execute(placed, words), net(words))
    assert placed.sent_messages > len(placed.transfers)  # a tuple is a message for each tensor


def test_answers_longer_than_a_socket_buffer_pass():
    net = nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(4)))
    x = torch.randn(2000, 1000)
    graph = traced(net, x)
    placed = schedule(graph, dealt(graph, 2), pair())
    torch.testing.assert_close(execute(placed, x), net(x).detach(), rtol=1e-4, atol=1e-4)


def test_a_rank_is_there_for_each_device_that_has_work():
    module, x = small("chain")
    graph, machine, trace = traced(module, x), unequal(), Trace()
    placed = schedule(graph, heft(graph, machine), machine)
    execute(placed, x, trace=trace)
    assert placed.devices == ["gpu 1"] and trace.ranks == 1


def test_other_inputs_are_refused_before_ranks_start():
    module, x = small("chain")
    placed = schedule(graph := traced(module, x), dealt(graph, 2), pair())
    with pytest.raises(ValueError, match=r"it is float64 \[1, 3, 32, 32\]"):
        execute(placed, x[:1])


class Picky(nn.Module):
    def forward(self, x):
        return torch.linalg.cholesky(x) + 1


def test_an_operation_that_fails_says_on_which_rank_and_nothing_hangs():
    net = nn.Sequential(nn.Linear(3, 3), Picky(), nn.Linear(3, 3)).double()
    with torch.no_grad():
        net[0].weight.zero_()
        net[0].bias.fill_(-1)
    graph = traced(net, torch.ones(3, 3, dtype=torch.float64))
    placed = schedule(graph, dealt(graph, 2), pair())
    with pytest.raises(RankError, match="(?s)rank 0 failed.*positive-definite.*rank 1: PeerLost"):
        execute(placed, torch.ones(3, 3, dtype=torch.float64))
