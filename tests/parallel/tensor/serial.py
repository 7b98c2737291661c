"""The ordinary networks that cut ones are compared with, and how far they are apart."""

import math

import torch
from torch import nn
from torch.nn import functional

from tests.parallel.array.test_fetch import drawn


class MLP(nn.Module):
    def __init__(self, inputs, hidden, outputs, bias=True):
        super().__init__()
        self.up, self.down = nn.Linear(inputs, hidden, bias), nn.Linear(hidden, outputs, bias)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class Attention(nn.Module):
    """Of all heads, written out; `dropout` leaves out weights."""

    def __init__(self, features, heads, causal=False, dropout=0.0):
        super().__init__()
        self.qkv, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.heads, self.causal, self.dropout = heads, causal, nn.Dropout(dropout)

    def forward(self, x):
        parts = [part.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
                 for part in self.qkv(x).chunk(3, -1)]  # fmt: skip
        q, k, v = parts
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        seen = self.dropout(scores.softmax(-1)) @ v
        return self.out(seen.transpose(-3, -2).flatten(-2))


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, features, heads, hidden, dropout):
        super().__init__()
        self.before, self.between = nn.LayerNorm(features), nn.LayerNorm(features)
        self.attention = Attention(features, heads, causal=True)
        self.mlp, self.dropout = MLP(features, hidden, features), nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.before(x)))
        return x + self.dropout(self.mlp(self.between(x)))


class Transformer(nn.Module):
    """Tokens to logits; the first and the last layer are one matrix."""

    def __init__(self, vocabulary=11, features=6, heads=3, hidden=7, blocks=2, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.blocks = nn.ModuleList(
            [Block(features, heads, hidden, dropout) for _ in range(blocks)]
        )
        self.head = nn.Linear(features, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def made(kind, *args, seed=0, **options):
    """A net of doubles, every parameter of which is drawn: no bias is zero, no norm is one."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        net = kind(*args, **options).double()
        for p in net.parameters():
            nn.init.normal_(p, std=0.5)
    return net


def part_of(mine, name, whole, rank):
    """What of a whole parameter, or its gradient, the module `mine` has under that name."""
    owner, _, key = name.rpartition(".")
    cut = getattr(mine.get_submodule(owner), "cut", {}).get(key)
    return whole if whole is None or cut is None else cut.part(whole, rank)


def slope_errors(mine, whole, rank):
    """{name: how far a gradient of `mine` is from its part of the whole one}."""
    theirs, errors = dict(whole.named_parameters()), {}
    assert {name for name, _ in mine.named_parameters()} == set(theirs)
    for name, p in mine.named_parameters():
        expected = part_of(mine, name, theirs[name].grad, rank)
        errors[name] = distance(p.grad, expected)
    return errors


def distance(a, b):
    """The largest difference, of numbers of the order of 1 or of the larger one's."""
    if a is None or b is None:
        return 0.0 if a is b else math.inf
    assert a.shape == b.shape, (a.shape, b.shape)
    if not a.numel():
        return 0.0
    scale = max(1.0, float(b.detach().abs().max()))
    return float((a.detach() - b.detach()).abs().max()) / scale


def worst(errors):
    """What is further off than rounding."""
    return {name: error for name, error in errors.items() if not error <= 1e-12}


__all__ = ["drawn"]
