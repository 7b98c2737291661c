"""Attention of which each rank has some heads: they need nothing of one another."""

import math

import torch
from torch import nn
from torch.nn import functional

from course.parallel.tensor.cut import OnRanks, checked_cuts, lengths, required_layer
from course.parallel.tensor.dropout import Dropout
from course.parallel.tensor.linear import ColumnLinear, RowLinear


class HeadAttention(OnRanks):
    """Self-attention of so many `heads`, cuts[r] to cuts[r + 1] of them on rank r (None: cut
    evenly; there may be more ranks than heads).

    `qkv` (a linear layer) makes queries, keys and values, one behind the other, each head by head;
    `out` takes what all heads have seen.  With `dropout` weights are left out as `Dropout` does.
    Cost: as an MLP.  Raises ValueError where heads and layers do not fit.
    """

    def __init__(self, comm, qkv, out, heads, *, causal=False, dropout=0.0, cuts=None,
                 algorithm="auto"):  # fmt: skip
        super().__init__(comm)
        features = required_layer(comm, out, nn.Linear).in_features
        three = required_layer(comm, qkv, nn.Linear).out_features
        if features % heads or three != 3 * features:
            raise ValueError(f"rank {comm.rank}: {heads} heads take equal parts of {features} "
                             f"features, and three times as many come: not {three}")  # fmt: skip
        self.causal, self.width = causal, features // heads
        self.heads = checked_cuts(comm, heads, cuts)
        feature_cuts = tuple(self.width * cut for cut in self.heads)
        self.qkv = ColumnLinear(comm, qkv, feature_cuts, blocks=3, algorithm=algorithm)
        self.out = RowLinear(comm, out, feature_cuts, algorithm=algorithm)
        self.dropout = Dropout(comm, dropout)

    def forward(self, x, cuts=None):
        """Of x [..., rows, inputs], all of them or this rank's (cut at `cuts`): as many
        [..., outputs].  Rows see one another, and if `causal` those before them."""
        mine = lengths(self.heads)[self.comm.rank]
        parts = self.qkv(x, cuts).unflatten(-1, (3, mine, self.width))
        seen = self._attend(*parts.transpose(-4, -2).unbind(-3))
        return self.out(seen.transpose(-3, -2).flatten(-2), cuts)

    def _attend(self, q, k, v):
        """What each head sees [..., heads, rows, width]."""
        if not (self.training and self.dropout.p):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        scores = q @ k.mT / math.sqrt(self.width)
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        return self.dropout(scores.softmax(-1), self.heads, axis=-3) @ v
