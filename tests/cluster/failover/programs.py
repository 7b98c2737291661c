"""Trainings that need every part of a checkpoint, and what they end with."""

import os
import random
import signal
from pathlib import Path

import numpy
import torch
from torch import nn

from course.cluster.failover import (
    Alike,
    Checkpoints,
    Model,
    Order,
    RandomNumbers,
    Residuals,
    train_with_checkpoints,
)
from course.parallel.data import DataParallel
from course.parallel.data.compression import OneBit

SAMPLES, BATCH, EVERY = 22, 8, 2


def samples():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
    return x, torch.randn(SAMPLES, 3, generator=generator, dtype=torch.float64)


def net():
    torch.manual_seed(0)
    layers = nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Dropout(0.3), nn.Linear(9, 3)
    return nn.Sequential(*layers).double()


class Momentum:
    """An optimiser whose first import costs a rank nothing."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        with torch.no_grad():
            for p, v in zip(self.parameters, self.velocity):
                p -= v.mul_(0.9).add_(p.grad, alpha=0.02)

    def state_dict(self):
        return {"velocity": self.velocity}

    def load_state_dict(self, state):
        self.velocity = state["velocity"]


class Scheduled:
    """Adam, and a schedule of its rate."""

    def __init__(self, parameters):
        self.adam = torch.optim.Adam(parameters, lr=0.02)
        self.rates = torch.optim.lr_scheduler.StepLR(self.adam, 3, 0.9)
        self.zero_grad = self.adam.zero_grad

    def step(self):
        self.adam.step()
        self.rates.step()

    def state_dict(self):
        return [self.adam.state_dict(), self.rates.state_dict()]

    def load_state_dict(self, state):
        for thing, own in zip((self.adam, self.rates), state):
            thing.load_state_dict(own)


class Whole:
    """Data parallel training with all that may be forgotten."""

    def __init__(self, comm, without=(), kind=None):
        self.hook, self.net = OneBit(), net()
        self.net = DataParallel(self.net, comm, hook=self.hook)
        self.optimizer = (kind or Momentum)(self.net.parameters())
        torch.manual_seed(comm.rank + 100)
        self.order, self.x, self.y = Order(SAMPLES, BATCH, seed=3), *samples()
        parts = {"model": Model(self.net), "optimizer": Alike(self.optimizer),
                 "random": RandomNumbers(),
                 "residuals": Residuals(self.hook, self.net.module)}  # fmt: skip
        self.parts = {name: part for name, part in parts.items() if name not in without}

    def step(self, rows):
        noise = torch.from_numpy(numpy.random.randn(len(rows), 6)) * 0.1 * random.random()
        self.optimizer.zero_grad()
        loss = ((self.net(self.x[rows] + noise) - self.y[rows]) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def end(self, losses):
        """All that a training comes to on this rank, to be compared bit for bit."""
        state = {name: (part.shared(), part.own()) for name, part in self.parts.items()}
        return losses, [x.tolist() for x in tensors(state)], self.order.dealt


def tensors(state):
    if isinstance(state, torch.Tensor):
        yield state.detach()
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)


def whole(comm, folder, steps, without=(), kind=None, other_ranks=False, **knobs):
    """Train on, and say what that came to."""
    training = Whole(comm, without, kind)
    with Checkpoints(comm, folder, every=EVERY, **knobs) as checkpoints:
        what = training.order, training.parts, checkpoints
        losses = train_with_checkpoints(comm, training.step, steps, *what, other_ranks=other_ranks)
    return training.end(losses)


def plain_net():
    """As many ranks as there may be come to the same, but for rounding."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()


def serial_losses(steps):
    net, order, (x, y), losses = plain_net(), Order(SAMPLES, BATCH, seed=3), samples(), []
    optimizer = Momentum(net.parameters())
    for _ in range(steps):
        rows = order.next()
        optimizer.zero_grad()
        loss = ((net(x[rows]) - y[rows]) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain(comm, folder, steps, log=None, die_at=None):
    """Data parallel training for any number of ranks: the losses, and the net in the end.

    `log`: a folder for what each rank has seen in each start; `die_at` {step: rank}: who is killed
    there, once."""
    net = DataParallel(plain_net(), comm)
    optimizer, order, (x, y) = Momentum(net.parameters()), Order(SAMPLES, BATCH, seed=3), samples()
    parts = {"model": Model(net), "optimizer": Alike(optimizer)}

    def step(rows):
        if log:
            note(log, comm, order.dealt, rows)
            die_once(log, comm, order.dealt, die_at)
        optimizer.zero_grad()
        loss = ((net(x[rows]) - y[rows]) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    with Checkpoints(comm, folder, every=EVERY, asynchronous=False) as checkpoints:
        losses = train_with_checkpoints(
            comm, step, steps, order, parts, checkpoints, other_ranks=True
        )
    return losses, {name: x.tolist() for name, x in net.module.state_dict().items()}


def note(log, comm, step, rows):
    """What this rank sees in a step; what it saw there before it was lost is replaced."""
    Path(log, f"step {step} ranks {comm.size} rank {comm.rank}").write_text(str(rows.tolist()))


def die_once(log, comm, step, die_at):
    killed = Path(log, f"killed at {step}")
    if comm.rank == die_at.get(step) and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
