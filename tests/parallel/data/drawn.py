"""Nets and programs that Hypothesis draws; each is data, and is played on one process or many."""

import contextlib
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import nn

from course.parallel.data.data_parallel import DataParallel

WIDTH = 6


class Net(nn.Module):
    """A chain of these parts; a forward may leave some of them out."""

    def __init__(self, parts, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.kinds, self.shared = parts, nn.Linear(WIDTH, WIDTH).double()
        self.parts = nn.ModuleList([PARTS[kind](self) for kind in parts])

    def forward(self, x, left_out=()):
        for number, (kind, part) in enumerate(zip(self.kinds, self.parts)):
            if number not in left_out:
                x = x + APPLY.get(kind, lambda part, x: torch.tanh(part(x)))(part, x)
        return x


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x):
        return self.factor * x


def frozen():
    return nn.Linear(WIDTH, WIDTH).double().requires_grad_(False)


PARTS = {
    "linear": lambda net: nn.Linear(WIDTH, WIDTH).double(),
    "shared": lambda net: net.shared,
    "scale": lambda net: Scale(),
    "frozen": lambda net: frozen(),
    "conv": lambda net: nn.Conv1d(1, 1, 3, padding=1).double(),
    "embedding": lambda net: nn.Embedding(3, WIDTH).double(),
    "single": lambda net: nn.Linear(WIDTH, WIDTH),
    "complex": lambda net: nn.Linear(WIDTH, WIDTH, dtype=torch.complex128),
}
APPLY = {
    "conv": lambda part, x: part(x[:, None])[:, 0],
    "embedding": lambda part, x: part((x.detach().sum(1) > 0).long()),
    "single": lambda part, x: torch.tanh(part(x.float()).double()),
    "complex": lambda part, x: part(x.to(torch.complex128)).abs().tanh(),
}


class Act(NamedTuple):
    """One thing that a program does with its net."""

    kind: str
    rows: int = 8
    cut: str = "evenly"
    left_out: tuple = ()
    seed: int = 0


BACKWARDS = ("plain", "retained", "two forwards", "with regulariser", "penalty", "gathered")
OTHERS = ("regulariser", "look", "zero", "none", "step", "thaw", "save")
CUTS = {
    "evenly": lambda n, p: [n // p + (rank < n % p) for rank in range(p)],
    "most first": lambda n, p: [n - p + 1] + [1] * (p - 1),
    "none last": lambda n, p: [n, *[0] * (p - 1)] if p < 3 else [n - 1, *[0] * (p - 2), 1],
}


@st.composite
def programs(draw):
    """The parts of a net, and what is done with it."""
    parts = draw(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=5))
    subset = st.sets(st.integers(0, len(parts) - 1), max_size=2).map(lambda s: tuple(sorted(s)))
    act = st.builds(
        Act, st.sampled_from(2 * BACKWARDS + OTHERS), st.integers(4, 11),
        st.sampled_from(sorted(CUTS)), subset, st.integers(0, 99),
    )  # fmt: skip
    return parts, draw(st.lists(act, min_size=1, max_size=7))


def play(parts, acts, comm=None, **options):
    """All gradients after each act, and the weights at the end."""
    net = Net(parts, seed=comm.rank if comm else 0)
    player = Player(DataParallel(net, comm, **options) if comm else net, net, comm)
    for act in acts:
        player.do(act)
    return player.seen, [p.detach().clone() for p in net.parameters()]


class Player:
    def __init__(self, wrapped, net, comm):
        self.wrapped, self.net, self.comm, self.seen = wrapped, net, comm, []
        self.optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)

    def rows(self, act, seed):
        """This rank's rows, or all."""
        generator = torch.Generator().manual_seed(1000 * seed + act.seed)
        x = torch.randn(act.rows, WIDTH, generator=generator, dtype=torch.float64)
        if self.comm is None:
            return x
        return x.split(CUTS[act.cut](act.rows, self.comm.size))[self.comm.rank]

    def do(self, act):
        getattr(self, act.kind.replace(" ", "_"))(act)
        self.seen.append([p.grad if p.grad is None else p.grad.clone()
                          for p in self.net.parameters()])  # fmt: skip

    def out(self, act, seed=0):
        return self.wrapped(self.rows(act, seed), act.left_out)

    def backward(self, loss, **knobs):
        """Whatever the net has left out, there is something to derive."""
        if loss.requires_grad:
            loss.backward(**knobs)

    def plain(self, act):
        self.backward(self.out(act).square().mean())

    def retained(self, act):
        out = self.out(act)
        self.backward(out[:, :3].square().mean(), retain_graph=True)
        self.backward(out[:, 3:].sin().mean())

    def two_forwards(self, act):
        self.backward(self.out(act).square().mean() + self.out(act, 1).cos().mean())

    def weights(self):
        return sum(p.abs().square().sum().double() for p in self.net.parameters()
                   if p.requires_grad)  # fmt: skip

    def with_regulariser(self, act):
        out = self.out(act)
        if out.requires_grad:
            self.backward(out.square().mean() + 0.01 * self.weights())

    def regulariser(self, act):
        self.backward(0.01 * self.weights())

    def penalty(self, act):
        x = self.rows(act, 0).requires_grad_()
        out = self.wrapped(x, act.left_out)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        if any(p.requires_grad for p in self.net.parameters()):
            self.backward(out.square().mean() + (slope.square().sum(1) - 1).square().mean())

    def gathered(self, act):
        """Two backwards that only gather, the second of all parts; a third that sends."""
        with self.wrapped.no_sync() if self.comm else contextlib.nullcontext():
            self.plain(act)
            self.plain(act._replace(left_out=(), seed=act.seed + 1))
        self.plain(act._replace(seed=act.seed + 2))

    def look(self, act):
        """A forward in grad mode of other rows on every rank; nobody calls backward."""
        self.wrapped(torch.ones(1 + (self.comm.rank if self.comm else 0), WIDTH).double())

    def zero(self, act):
        self.optimizer.zero_grad(set_to_none=False)

    def none(self, act):
        self.optimizer.zero_grad()

    def step(self, act):
        self.optimizer.step()

    def thaw(self, act):
        """What was frozen is trained, and the other way round."""
        part = self.net.parts[act.seed % len(self.net.parts)]
        for parameter in part.parameters():
            parameter.requires_grad_(not parameter.requires_grad)

    def save(self, act):
        self.wrapped.load_state_dict(self.wrapped.state_dict())
