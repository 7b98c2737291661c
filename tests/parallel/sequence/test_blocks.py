"""Answers to some keys, joined, are the answer to all; so are their slopes."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from course.parallel.sequence import blocks
from course.parallel.sequence.blocks import attend, join, slopes, tiles
from tests.parallel.array.test_fetch import drawn, off

Q, K, V = drawn(2, 9, 4), drawn(2, 9, 4, seed=1), drawn(2, 9, 3, seed=2)
SCALE = 0.5


def in_blocks(causal, cuts):
    """The answers and logs to the keys between `cuts`, one block after the other."""
    answers, logs = torch.zeros(2, 9, 3).double(), torch.full((2, 9, 1), -torch.inf).double()
    for start, stop in zip((0, *cuts), (*cuts, 9)):
        for tile in tiles([(0, 9)], [(start, stop)], causal):
            some = attend(Q, K[:, start:stop], V[:, start:stop], tile, SCALE)
            join(answers[..., tile.rows, :], logs[..., tile.rows, :], *some)
    return answers, logs


@pytest.mark.parametrize("tile", [2, 4, 256])
@pytest.mark.parametrize("causal, cuts", [
    (False, ()), (False, (4,)), (False, (1, 3, 8)), (True, ()),  # a block is one of queries, too
])  # fmt: skip
def test_blocks_of_keys_are_joined_to_the_whole(causal, cuts, tile, monkeypatch):
    monkeypatch.setattr(blocks, "TILE", tile)
    answers, logs = in_blocks(causal, cuts)
    expected = scaled_dot_product_attention(Q, K, V, is_causal=causal, scale=SCALE)
    assert (answers - expected).abs().max() < 1e-14
    scores = SCALE * Q @ K.mT
    scores = scores.masked_fill(~torch.ones(9, 9).bool().tril(), -torch.inf) if causal else scores
    assert (logs - scores.logsumexp(-1, keepdim=True)).abs().max() < 1e-13


@pytest.mark.parametrize("causal", [False, True])
def test_slopes_come_from_the_logs_alone(causal, monkeypatch):
    monkeypatch.setattr(blocks, "TILE", 4)
    inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
    out = scaled_dot_product_attention(*inputs, is_causal=causal, scale=SCALE)
    slope = drawn(2, 9, 3, seed=3)
    expected = torch.autograd.grad(out, inputs, slope)
    _, logs = in_blocks(causal, ())
    saved = logs, slope, (slope * out.detach()).sum(-1, keepdim=True)
    found = [torch.zeros_like(x) for x in (Q, K, V)]
    for tile in tiles([(0, 9)], [(0, 9)], causal):
        for whole, place, some in zip(found, (tile.rows, tile.columns, tile.columns),
                                      slopes(Q, K, V, tile, SCALE, saved)):  # fmt: skip
            whole[:, place] += some
    assert max(off(a - b) for a, b in zip(found, expected)) < 1e-14


def test_pairs_that_a_causal_query_cannot_see_are_not_computed():
    kept = list(tiles([(0, 4), (12, 16)], [(4, 8), (8, 12)], True))
    assert [(t.rows, t.columns, t.masked) for t in kept] == [
        (slice(4, 8), slice(0, 4), False), (slice(4, 8), slice(4, 8), False)
    ]  # fmt: skip
