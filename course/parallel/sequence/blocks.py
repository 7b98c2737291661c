"""Attention to some of the keys, and how two such answers become one.

For one query with scores s_j: the answer to some keys is  o = sum_j exp(s_j) v_j / exp(l),
l = log sum_j exp(s_j).  To the keys of two blocks together it is

    l = log(exp(l1) + exp(l2)),    o = o1 exp(l1 - l) + o2 exp(l2 - l)

so that blocks may come one after the other, and no row of scores is ever whole.
Source: Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (backward from l alone).
"""

import torch

TILE = 256  # queries at a time: what a rank needs for scores grows with the keys, not their square


class Tile:
    """Queries `rows` of this rank against keys `columns` of a block; `masked` if some of the keys
    are behind some of the queries, by the positions (start of rows, start of columns)."""

    def __init__(self, rows, columns, starts, causal):
        self.rows, self.columns = rows, columns
        (first, last), key = (starts[0], starts[0] + rows.stop - rows.start - 1), starts[1]
        end = key + columns.stop - columns.start
        self.empty = causal and key > last
        self.masked = causal and end - 1 > first
        self.shift = first - key

    def scores(self, q, k, scale):
        """[..., rows, columns], in what sums are made in; a key behind its query has -inf."""
        scores = scale * (q[..., self.rows, :] @ k[..., self.columns, :].mT)
        if self.masked:
            seen = torch.ones(scores.shape[-2:], dtype=bool, device=q.device).tril(self.shift)
            scores = scores.masked_fill(~seen, -torch.inf)
        return scores


def tiles(queries, keys, causal):
    """The Tiles of intervals of `queries` (a rank's) and `keys` (a block's), but for empty ones."""
    row = 0
    for first, stop in queries:
        for at in range(first, stop, TILE):
            rows = slice(row + at - first, row + min(at + TILE, stop) - first)
            column = 0
            for key, end in keys:
                tile = Tile(rows, slice(column, column + end - key), (at, key), causal)
                column += end - key
                if end > key and not tile.empty:
                    yield tile
        row += stop - first


def attend(q, k, v, tile, scale):
    """The answers of a tile [..., rows, dim], and l [..., rows, 1].

    Each query sees the tile's first key: queries and keys are cut at the same places.
    """
    scores = tile.scores(q, k, scale)
    highest = scores.amax(-1, keepdim=True)
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    return weights @ v[..., tile.columns, :] / total, total.log() + highest


def join(answers, logs, more, of_more):
    """Both are replaced, in place, by what they are together with `more` and its logs."""
    both = torch.logaddexp(logs, of_more)
    answers.mul_((logs - both).exp()).add_(more * (of_more - both).exp())
    logs.copy_(both)


def slopes(q, k, v, tile, scale, saved):
    """What a tile adds to the slopes of its queries, keys and values.

    `saved`: the logs of all keys [..., rows, 1], the slope of the answers, and its product with
    the answers, summed [..., rows, 1]."""
    logs, slope, inner = (each[..., tile.rows, :] for each in saved)
    weights = (tile.scores(q, k, scale) - logs).exp()
    of_scores = scale * weights * (slope @ v[..., tile.columns, :].mT - inner)
    return (of_scores @ k[..., tile.columns, :], of_scores.mT @ q[..., tile.rows, :],
            weights.mT @ slope)  # fmt: skip
