"""The ordinary networks that cut ones are compared with, and how far they are apart; a rank imports
this and no more."""

import math

import torch
from torch import nn
from torch.nn import functional


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def some_cuts(draw, length, p):
    """By chance, empty parts among them."""
    return (0, *sorted(draw.randint(0, length) for _ in range(p - 1)), length)


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
    largest = (a.detach() - b.detach()).abs().max().item()
    return math.inf if math.isnan(largest) else largest / scale  # which no `max` passes over


def worst(errors):
    """What is further off than rounding."""
    return {name: error for name, error in errors.items() if not error <= 1e-12}


def compared(comm, whole, mine, x, rows, use=lambda net, *args: net(*args)):
    """Errors of the value, of the slope of x [..., rows, features], and of all parameters, in one
    use of both; `rows`: the cuts of the rows, or None."""
    for net in (mine, whole):
        net.zero_grad(set_to_none=bool(len(x) % 2))
    here = slice(None) if rows is None else slice(*rows[comm.rank : comm.rank + 2])
    theirs, own = x.clone().requires_grad_(), x[..., here, :].clone().requires_grad_()
    expected = whole(theirs)
    found = use(mine, own, rows)
    y = drawn(*expected.shape, seed=7)
    (expected * y).sum().backward()
    (found * y[..., here, :]).sum().backward()
    return {
        "value": distance(found, expected[..., here, :]),
        "slope": distance(own.grad, theirs.grad[..., here, :]),
        **slope_errors(mine, whole, comm.rank),
    }
