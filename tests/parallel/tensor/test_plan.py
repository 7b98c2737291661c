"""An ordinary transformer cut by a plan is trained as the whole one, in any program."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.learning.training.large_batch import LAMB
from course.parallel.tensor import (
    ColumnLinear,
    Dropout,
    HeadAttention,
    RowLinear,
    VocabEmbedding,
    clip_grad_norm,
    load_whole_state_dict,
    on_rows,
    tensor_parallel,
    vocab_cross_entropy,
    whole_norms,
    whole_state_dict,
)
from course.worlds import RankError, run
from tests.parallel.tensor import serial
from tests.parallel.tensor.serial import distance, slope_errors
from tests.worlds.simulator.clusters import switched

PLAN = {
    "embedding": VocabEmbedding,
    "blocks.*.attention": lambda comm, a: HeadAttention(
        comm, a.qkv, a.out, a.heads, causal=a.causal, dropout=a.dropout.p
    ),
    "blocks.*.mlp.up": ColumnLinear,
    "blocks.*.mlp.down": RowLinear,
    "blocks.*.dropout": lambda comm, dropout: Dropout(comm, dropout.p),
    "head": ColumnLinear,
}
VOCABULARY = 11


def loss_of(net, tokens, comm=None, rows=None, again=False):
    """Of the next token, from the logits of the whole net, or of a cut one with whole or cut rows;
    `again`: blocks are computed a second time on the way back."""
    seen, wanted = tokens[:, :-1], tokens[:, 1:]
    x = net.embedding(seen) if rows is None else net.embedding(seen, rows)
    for block in net.blocks:
        args = (x,) if comm is None or rows is None else (comm, block, x, rows)
        call = block if len(args) == 1 else block_of_rows
        x = checkpoint(call, *args, use_reentrant=False) if again else call(*args)
    if comm is None:
        return nn.functional.cross_entropy(net.head(x).flatten(0, 1), wanted.flatten())
    logits = net.head(x) if rows is None else net.head(x, rows)
    return vocab_cross_entropy(comm, logits, wanted, net.head.cuts)


def block_of_rows(comm, block, x, rows):
    """A block in the sequence-parallel way: what is between cut layers has cut rows."""
    mlp = block.mlp
    seen = block.attention(on_rows(comm, block.before, x), rows)
    x = x + block.dropout(seen, rows)
    hidden = nn.functional.gelu(mlp.up(on_rows(comm, block.between, x), rows))
    return x + block.dropout(mlp.down(hidden, rows), rows)


def tokens_of(seed, length=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (2, length), generator=generator)


def both(comm, dropout):
    whole = serial.made(serial.Transformer, dropout=dropout)
    mine = tensor_parallel(serial.made(serial.Transformer, dropout=dropout, seed=comm.rank),
                           comm, PLAN)  # fmt: skip
    return whole, mine


def trained(comm, dropout, steps):
    """Errors of every gradient and weight over steps of LAMB, whose rows are cut in turns."""
    whole, mine = both(comm, dropout)
    rows, errors = (0, *[1] * (comm.size - 1), 5), {}
    optimizers = (
        LAMB(whole.parameters(), 0.01, weight_decay=0.1),
        LAMB(mine.parameters(), 0.01, weight_decay=0.1, norms=whole_norms(mine)),
    )
    for step in range(steps):
        found = []
        for net, *how in ((whole,), (mine, comm, rows if step % 2 else None)):
            net.zero_grad()
            torch.manual_seed(step)
            found.append(loss_of(net, tokens_of(step), *how))
            found[-1].backward()
        errors[step, "loss"] = distance(*found)
        errors |= {(step, key): e for key, e in slope_errors(mine, whole, comm.rank).items()}
        nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
        clip_grad_norm(mine, 1.0)
        for optimizer in optimizers:
            optimizer.step()
    state, expected = whole_state_dict(mine), whole.state_dict()
    assert state.keys() == expected.keys()
    tied = mine.head.weight is mine.embedding.weight
    errors |= {key: distance(state[key], expected[key]) for key in expected}
    return tied, {key: error for key, error in errors.items() if not error < 1e-10}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_a_transformer_trains_as_on_one_process(ranks):
    on = None if ranks == 4 else switched(ranks)
    assert run(trained, ranks, 0.25, 6, timeout=30, on=on) == [(True, {})] * ranks


ACTS = ("backward", "rows", "retained", "look", "step", "none", "zero", "thaw", "copy", "save")
AGAIN = ("again", "again of rows", "copy", "rows", "retained", "step", "thaw")


class Player:
    """One program on a whole net, or on a cut one; `seen`: whole gradients after every act."""

    def __init__(self, net, comm=None):
        self.net, self.comm, self.losses = net, comm, []
        self.optimizer = torch.optim.Adam(net.parameters(), 0.01)

    def do(self, number, act):
        tokens, rows = tokens_of(number), None
        if self.comm and "rows" in act:
            rows = (0, 0, *range(1, self.comm.size - 1), 5) if self.comm.size > 1 else (0, 5)
        torch.manual_seed(number)
        how = {"comm": self.comm, "rows": rows, "again": "again" in act}
        if act in ("backward", "rows", "again", "again of rows", "retained"):
            loss = loss_of(self.net, tokens, **how)
            if loss.requires_grad:
                loss.backward(retain_graph=act == "retained")
                if act == "retained":
                    (2 * loss).sin().backward()
            self.losses.append(loss.detach())
        else:
            getattr(self, act)(number)

    def look(self, number):
        with torch.no_grad():
            self.losses.append(loss_of(self.net, tokens_of(number), self.comm))

    def step(self, number):
        clip = clip_grad_norm if self.comm else lambda net, most: nn.utils.clip_grad_norm_(
            net.parameters(), most)  # fmt: skip
        self.losses.append(clip(self.net, 0.5).double())
        self.optimizer.step()

    def none(self, number):
        self.net.zero_grad()

    def zero(self, number):
        self.net.zero_grad(set_to_none=False)

    def thaw(self, number):
        """What was frozen is trained, and the other way round."""
        names = [name for name, _ in self.net.named_parameters()]
        for name in names[number % 4 :: 4]:
            p = self.net.get_parameter(name)
            p.requires_grad_(not p.requires_grad)

    def copy(self, number):
        self.net = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.01)

    def save(self, number):
        if self.comm:
            load_whole_state_dict(self.net, whole_state_dict(self.net))
        else:
            self.net.load_state_dict(self.net.state_dict())


def played(comm, acts):
    """The first act after which a gradient or a loss is not that of the whole net."""
    players = [Player(net, c) for net, c in zip(both(comm, 0.2), (None, comm))]
    for number, act in enumerate(acts):
        for player in players:
            player.do(number, act)
        theirs, mine = players
        errors = {n: distance(b, a) for n, (a, b) in enumerate(zip(theirs.losses, mine.losses))}
        errors |= slope_errors(mine.net, theirs.net, comm.rank)
        bad = {key: error for key, error in errors.items() if not error < 1e-10}
        if bad:
            return number, act, bad
    return None


FIXED = settings(derandomize=True, deadline=None, database=None,
                 suppress_health_check=[HealthCheck.too_slow])  # fmt: skip


@settings(FIXED, max_examples=25)
@given(st.lists(st.sampled_from(ACTS), min_size=2, max_size=6), st.integers(1, 4))
def test_any_program_on_the_imagined_cluster(acts, ranks):
    assert run(played, ranks, acts, on=switched(ranks)) == [None] * ranks


@settings(FIXED, max_examples=2)
@given(st.lists(st.sampled_from(AGAIN), min_size=4, max_size=6), st.integers(2, 3))
def test_any_program_on_processes(acts, ranks):
    assert run(played, ranks, acts, timeout=20) == [None] * ranks


def shared(comm):
    """A layer used at two places is one layer still, and a frozen one is frozen."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(3, 4))
    net[2] = net[0]
    net[1].requires_grad_(False)
    tensor_parallel(net, comm, {"[02]": ColumnLinear, "1": RowLinear})
    frozen = [p.requires_grad for p in net[1].parameters()]
    return net[2] is net[0], frozen, net[0].weight.shape[0]


def test_shared_layers_stay_shared_and_frozen_ones_frozen():
    assert run(shared, 2, timeout=10) == [(True, [False, False], 2)] * 2


def wrong(comm, kind):
    net = serial.made(serial.Transformer)
    plans = {
        "name": {"blocks.*.mlp.middle": ColumnLinear},
        "tied": {"embedding": VocabEmbedding, "head": lambda comm, head: RowLinear(comm, head)},
        "kind": {"blocks.0": ColumnLinear},
    }
    tensor_parallel(net, comm, plans[kind])


@pytest.mark.parametrize("kind, sentence", [
    ("name", r"rank 0: no layer is named 'blocks.\*.mlp.middle', of embedding, blocks, blocks.0,"),
    ("tied", "rank 0: embedding and head share a parameter, and would cut it in two ways: "
             r"Cut\(axis=0, .* and Cut\(axis=1"),
    ("kind", "rank 0: what is cut here is a Linear, not Block"),
])  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(kind, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, kind, timeout=10)
