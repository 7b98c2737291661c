"""Input gradients first, weight gradients later: together the whole backward, and no more work."""

import random

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.pipeline.split_backward import SplitBackward
from course.parallel.pipeline.stage import Departed
from course.worlds import run, simulated

WIDTH = 5


class Scaled(torch.autograd.Function):
    """A function of two tensors, one of them often a weight."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, slope):
        x, w = ctx.saved_tensors
        return slope * w, (slope * x).sum(0)


class Net(nn.Module):
    """A chance graph: each line makes another tensor of earlier ones and of weights."""

    def __init__(self, seed, lines=9):
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.linears = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.linears[2].weight.requires_grad_(False)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.norm, self.scale = nn.LayerNorm(WIDTH), nn.Parameter(torch.randn(WIDTH))
        kinds = ("linear", "linear", "normed", "norm", "scale", "add", "tanh", "chunk", "weights")
        self.lines = [(draw.choice(kinds), draw.randrange(99), draw.randrange(99))
                      for _ in range(lines)]  # fmt: skip
        self.given = [draw.randrange(99) for _ in range(2)]
        self.double()

    def line(self, kind, x, y, linear):
        if kind == "weights":
            return self.linears[0].weight[:4] @ self.linears[1].weight * 1.5
        if kind == "chunk":
            return torch.cat([c.sin() for c in x.chunk(2, 1)], 1)
        made = {
            "linear": linear,
            "normed": self.normed,
            "norm": self.norm,
            "tanh": torch.tanh,
            "scale": lambda x: Scaled.apply(x, self.scale),
            "add": lambda x: x * y + x,
        }
        return made[kind](x)

    def forward(self, *arrived):
        known = list(arrived)
        for kind, a, b in self.lines:
            x, y = known[a % len(known)], known[b % len(known)]
            known.append(self.line(kind, x, y, self.linears[b % 3]))
        return [known[-1], known[self.given[0] % len(known)], known[self.given[0] % len(known)]]


def gradients(seed, split):
    """Of what came in, and of the weights."""
    net, generator = Net(seed), torch.Generator().manual_seed(seed)
    drawn = [torch.randn(4, WIDTH, generator=generator, dtype=torch.float64) for _ in range(5)]
    arrived = [drawn[0].requires_grad_(), drawn[1].requires_grad_(seed % 3 > 0)]
    pairs = [(x, s) for x, s in zip(net(*arrived), drawn[2:]) if x.requires_grad]
    edges = [get_gradient_edge(x) for x in arrived if x.requires_grad]
    if not pairs:
        return []
    if split:
        outputs, slopes = zip(*pairs)
        halves = SplitBackward(Departed.apply(slopes, *outputs), edges)
        came = halves.input_gradients()
        assert all(p.grad is None for p in net.parameters())
        halves.accumulate()
        assert all(x.grad is None for x in arrived)
    else:
        torch.autograd.backward(*zip(*pairs))
        came = [x.grad for x in arrived if x.requires_grad]
    return [*came, *(p.grad for p in net.parameters())]


@pytest.mark.parametrize("block", range(4))
def test_both_halves_are_the_whole_for_chance_graphs(block):
    for seed in range(25 * block, 25 * block + 25):
        for a, b in zip(gradients(seed, True), gradients(seed, False), strict=True):
            if a is None or b is None:
                assert all(x is None or not x.any() for x in (a, b)), seed
            else:
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def flops(comm, split, layers):
    """What a backward of linear layers charges on the imagined cluster, or each half of it."""
    net = nn.Sequential(*[nn.Linear(8, 8, device="meta") for _ in range(layers)])
    x = torch.empty(4, 8, device="meta", requires_grad=True)
    out = net(x).sum()
    times = [comm.clock()]
    if split:
        halves = SplitBackward(out, [get_gradient_edge(x)])
        halves.input_gradients()
        times.append(comm.clock())
        halves.accumulate()
    else:
        out.backward()
    times.append(comm.clock())
    return [b - a for a, b in zip(times, times[1:])]


def a_second_a_product(operation, flops, nbytes, device):
    return float(operation in ("mm", "addmm"))


def test_no_product_is_computed_twice():
    on = simulated(one_switch(1, FREE, NDR), charge=a_second_a_product)
    assert run(flops, 1, False, 3, on=on) == [[6.0]]
    assert run(flops, 1, True, 3, on=on) == [[3.0, 3.0]]


def test_a_hook_of_a_tensor_counts_once():
    """It is called in both halves, where weights branch off; a slope doubled twice was a wrong
    gradient of the weights alone."""
    found = []
    for split in (False, True):
        torch.manual_seed(0)
        net, x = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True)
        y = net(x)
        y.register_hook(lambda slope: 2 * slope)
        if split:
            halves = SplitBackward(y.square().sum(), [get_gradient_edge(x)])
            came = halves.input_gradients()
            halves.accumulate()
        else:
            y.square().sum().backward()
            came = [x.grad]
        found.append([*came, net.weight.grad, net.bias.grad])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b)


def test_what_depends_on_no_input_has_all_its_backward_in_the_second_half():
    net, x = nn.Linear(3, 3), torch.ones(2, 3)
    halves = SplitBackward(net(x).sum(), [])
    assert halves.input_gradients() == []
    assert net.weight.grad is None
    halves.accumulate()
    assert torch.equal(net.weight.grad, torch.full((3, 3), 2.0))
