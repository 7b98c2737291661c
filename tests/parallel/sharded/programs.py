"""Programs that train something, on one process and on shards: what they end with must be equal."""

import contextlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.parallel.sharded import Sharded


class Block(nn.Module):
    """A unit with a unit inside."""

    def __init__(self, width):
        super().__init__()
        self.outer, self.inner = nn.Linear(width, width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x))) * self.scale


class Net(nn.Module):
    """Layers used twice, tied, frozen, unused, used in every second step, nested, checkpointed."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.twice = nn.Linear(6, 7), nn.Linear(7, 7)
        self.frozen, self.unused = nn.Linear(7, 7), nn.Linear(3, 2)
        self.frozen.requires_grad_(False)
        self.sometimes, self.block = nn.Linear(7, 7), Block(7)
        self.norms = nn.ModuleList([nn.LayerNorm(7), nn.LayerNorm(7)])
        self.tied, self.last = nn.Linear(7, 7, bias=False), nn.Linear(7, 7)
        self.tied.weight = self.first_of_two()
        self.own, self.wave = nn.Parameter(torch.ones(7)), nn.Parameter(torch.ones(7) * (1 + 2j))
        self.register_buffer("seen", torch.zeros(()))
        self.double()
        self.wave.data = self.wave.data.to(torch.complex128)

    def first_of_two(self):
        return self.last.weight

    def forward(self, x, step, how=None):
        x = self.twice(torch.tanh(self.twice(torch.tanh(self.first(x)))))
        x = self.frozen(self.norms[0](x))
        x = checkpoint(self.block, x, use_reentrant=False) if how == "checkpoint" else self.block(x)
        x = self.sometimes(x) if step % 2 else x
        x = self.norms[1](x * self.own + (x * self.wave).real)
        return self.last(torch.tanh(self.tied(x)))


OPTIMIZERS = {
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True, "foreach": False}),
}


def rows(step, count=11):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, 7, generator=generator, dtype=torch.float64)


def loss_of(net, x, y, step, how=None):
    return ((net(x, step, how) - y) ** 2).mean()


def plain(net, optimizer, clip, step, x, y):
    loss_of(net, x, y, step).backward()
    optimizer.step()


def clipped(net, optimizer, clip, step, x, y):
    loss_of(net, x, y, step).backward()
    clip(0.05)
    optimizer.step()


def checkpointed(net, optimizer, clip, step, x, y):
    loss_of(net, x, y, step, "checkpoint").backward()
    optimizer.step()


def evaluated(net, optimizer, clip, step, x, y):
    with torch.no_grad():
        loss_of(net, x, y, step + 1), loss_of(net, x, y, step)
    loss_of(net, x, y, step)  # a loss that nobody derives
    plain(net, optimizer, clip, step, x, y)


def two_losses(net, optimizer, clip, step, x, y):
    (loss_of(net, x, y, step) + 2 * loss_of(net, x, y * 2, step + 1)).backward()
    optimizer.step()


def two_backwards(net, optimizer, clip, step, x, y):
    loss = loss_of(net, x, y, step)
    loss.backward(retain_graph=True)
    (3 * loss).backward()
    optimizer.step()


def accumulated(net, optimizer, clip, step, x, y):
    with net.no_sync() if isinstance(net, Sharded) else contextlib.nullcontext():
        loss_of(net, x, y, step).backward()
    loss_of(net, x, y * 2, step + 1).backward()
    optimizer.step()


def frozen_later(net, optimizer, clip, step, x, y):
    module = getattr(net, "module", net)
    module.twice.requires_grad_(step < 2)
    module.frozen.requires_grad_(step > 2)
    plain(net, optimizer, clip, step, x, y)


def penalised(net, optimizer, clip, step, x, y):
    """Backward through the slope of the loss at the input, of each row alone."""
    x.requires_grad_()
    loss = loss_of(net, x, y, step)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + (slope * len(x)).square().sum(1).mean()).backward()
    optimizer.step()


PROGRAMS = [plain, clipped, checkpointed, evaluated, two_losses, two_backwards, accumulated,
            frozen_later, penalised]  # fmt: skip


def serially(program, kind, steps, options=None):
    net = Net()
    chosen, knobs = OPTIMIZERS[kind]
    optimizer = chosen(net.parameters(), **knobs)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 3 > 0)
        program(net, optimizer, lambda most: nn.utils.clip_grad_norm_(net.parameters(), most), step,
                *rows(step))  # fmt: skip
    return net.state_dict()


def on_shards(comm, program, kind, steps, **settings):
    net = Sharded(Net(seed=comm.rank), comm, **settings)
    chosen, knobs = OPTIMIZERS[kind]
    optimizer = net.optimizer(chosen, **knobs)
    for step in range(steps):
        x, y = (part.tensor_split(comm.size)[comm.rank] for part in rows(step))
        optimizer.zero_grad(set_to_none=step % 3 > 0)
        program(net, optimizer, net.clip_grad_norm_, step, x, y)
    return net.state_dict()
