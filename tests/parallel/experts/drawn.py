"""Mixtures of experts that Hypothesis draws, played on one process by brute force and on many."""

import math
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import nn

from course.parallel.experts.gating import NoisyTopKGate, squared_variation
from course.parallel.experts.mixture import MixtureOfExperts
from course.parallel.hybrid.gradients import SummedGradients, gradient_plan

WIDTH, OUT = 5, 5


class Case(NamedTuple):
    """What a program does: `shares` are the tokens of each rank."""

    shares: tuple
    experts: int = 4
    k: int = 2
    capacity: float | None = None
    seed: int = 0
    ties: bool = False
    noisy: bool = True
    frozen: bool = False
    uses: int = 1
    biased: bool = False

    @property
    def tokens(self):
        return sum(self.shares)


def cases(ranks):
    experts = st.integers(ranks, 9)
    return st.builds(
        Case,
        st.tuples(*[st.sampled_from([0, 0, 1, 3, 8]) for _ in range(ranks)]),
        experts,
        st.integers(1, ranks),
        st.sampled_from([None, None, 0.3, 1.0, 1.5]),
        st.integers(0, 99),
        *[st.booleans() for _ in range(3)],
        st.integers(1, 3),
        st.booleans(),
    )


def normal(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def expert(case):
    def make(number):
        net = nn.Sequential(nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, OUT)).double()
        for place, p in enumerate(net.parameters()):
            p.data = normal(*p.shape, seed=1000 * number + place + case.seed)
        return net.requires_grad_(not (case.frozen and number % 2 == 0))

    return make


def gate(case):
    made = NoisyTopKGate(WIDTH, case.experts, case.k, dtype=torch.float64)
    if not case.ties:
        made.weight.data = normal(WIDTH, case.experts, seed=case.seed + 1)
        made.noise_weight.data = normal(WIDTH, case.experts, seed=case.seed + 2)
    if case.biased:  # some experts get next to nothing
        made.weight.data *= torch.linspace(0, 4, case.experts, dtype=torch.float64)
    return made.train(case.noisy)


class Net(nn.Module):
    """A linear layer that all ranks have, a mixture behind it, and the tokens themselves beside."""

    def __init__(self, mixture, case):
        super().__init__()
        self.body = nn.Linear(WIDTH, WIDTH).double()
        self.body.weight.data = normal(WIDTH, WIDTH, seed=case.seed + 3)
        self.body.bias.data = normal(WIDTH, seed=case.seed + 4)
        self.mixture = mixture

    def forward(self, x, noise):
        said = self.mixture(self.body(x), noise)
        return x + said[0], said[1]


class BruteForce(nn.Module):
    """Every expert sees every token."""

    def __init__(self, case):
        super().__init__()
        self.gate, self.case = gate(case), case
        self.experts = nn.ModuleDict({str(i): expert(case)(i) for i in range(case.experts)})

    def forward(self, x, noise):
        chosen, weights, importance, load = self.gate(x, noise)
        dense = torch.zeros(len(x), self.case.experts, dtype=x.dtype)
        for token in range(len(x)):
            for slot in range(self.case.k):
                dense[token, chosen[token, slot]] = weights[token, slot]
        for number in range(self.case.experts if self.case.capacity else 0):
            late = (chosen == number).any(1).nonzero().flatten()[self.limit(len(x)) :]
            dense[late, number] = 0
        y = sum(dense[:, [i]] * self.experts[str(i)](x) for i in range(self.case.experts))
        return y, 0.1 * squared_variation(importance) + 0.2 * squared_variation(load)

    def limit(self, tokens):
        return math.ceil(self.case.capacity * self.case.k * tokens / self.case.experts)


def batch(case, use):
    shape = case.tokens, case.experts
    x, target = (normal(case.tokens, WIDTH, seed=case.seed + 10 * use + i) for i in (5, 6))
    return x, target, normal(*shape, seed=case.seed + 10 * use + 7)


def played(net, case, own=slice(None)):
    """The outputs of every use, then every gradient, the inputs' too; each loss is a share."""
    told = {}
    for use in range(case.uses):
        x, target, noise = (part[own] for part in batch(case, use))
        x.requires_grad_()
        y, balance = net(x, noise if case.noisy else None)
        told[f"y {use}"], told[f"balance {use}"] = y.detach(), balance.detach()
        (((y - target) ** 2).sum() / max(1, case.tokens) + balance).backward()
        told[f"x {use}"] = x.grad
    return told | {name: p.grad for name, p in net.named_parameters()}


def by_brute_force(case):
    return played(Net(BruteForce(case), case), case)


def own_rows(case, rank):
    return slice(sum(case.shares[:rank]), sum(case.shares[: rank + 1]))


def on_ranks(comm, drawn):
    """What each rank has of every case."""
    told = []
    for case in drawn:
        knobs = {"capacity_factor": case.capacity, "importance_weight": 0.1, "load_weight": 0.2}
        mixture = MixtureOfExperts(comm, gate(case), expert(case), **knobs)
        net = Net(mixture, case)
        alone = comm.split(comm.rank)
        plan = gradient_plan(net, comm, {"mixture.experts": alone})
        gradients = SummedGradients(net, plan, bucket_mb=1e-4)
        told.append(played(net, case, own_rows(case, comm.rank)))
        del gradients
    return told
