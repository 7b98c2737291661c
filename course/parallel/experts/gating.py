"""Noisy top-k gating: which experts see a token, and with what weight.

`NoisyTopKGate` is the trained gate; the functions under it are its parts, each a formula of the
paper.  Source: Shazeer et al. 2017, «Outrageously large neural networks», sections 2.1 and 4 and
appendix A; the least deviation and what is a load without noise are tensor2tensor's.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import softplus

from course.comm.counts import required_count

LEAST_DEVIATION = 1e-2  # of the noise
EPSILON = 1e-10  # added to a squared mean: no expert has a token where there are none


class Gates(NamedTuple):
    """Of each token its experts, chosen [tokens, k], and their weights [tokens, k], which add up to
    1; of each expert its importance [experts], the sum of its weights, and its load [experts], an
    estimate of its tokens that has a derivative."""

    chosen: torch.Tensor
    weights: torch.Tensor
    importance: torch.Tensor
    load: torch.Tensor


class NoisyTopKGate(nn.Module):
    """`k` of `experts` for every token x [tokens, width]; both its matrices begin as zeros, and so
    all begin alike, on all ranks.

    In training each token's logits have normal noise of a deviation that is learned, too; it is
    drawn from torch's generator, or given.  Of equal logits the lower number wins.  On the meta
    device, where nothing can be compared, tokens are dealt out in turn.
    Raises ValueError unless 1 <= k <= experts.
    """

    def __init__(self, width: int, experts: int, k: int = 2, dtype=None):
        super().__init__()
        self.k, self.experts = required_count(k, "k"), required_count(experts, "experts")
        if self.k > self.experts:
            raise ValueError(f"a token goes to k experts of all: k {k} of {experts} cannot be")
        self.weight = nn.Parameter(torch.zeros(width, experts, dtype=dtype))
        self.noise_weight = nn.Parameter(torch.zeros(width, experts, dtype=dtype))

    def forward(self, x, noise=None) -> Gates:
        """The Gates of x [tokens, width]; noise [tokens, experts] is standard normal.

        Raises ValueError for noise of another shape, and where a logit is not a number.
        """
        clean = x @ self.weight
        if not self.training:
            return gates(clean, clean, None, self.k)
        if noise is None:
            noise = torch.randn_like(clean)
        if noise.shape != clean.shape:
            told = f"{list(clean.shape)}, not {list(noise.shape)}"
            raise ValueError(f"noise has a number for every token and expert: {told}")
        deviation = softplus(x @ self.noise_weight) + LEAST_DEVIATION
        return gates(clean, clean + noise * deviation, deviation, self.k)


def gates(clean, noisy, deviation, k: int) -> Gates:
    """The Gates of logits without and with noise of a `deviation`, all [tokens, experts]; if that
    is None there is none, and an expert's load is how many tokens it has."""
    chosen = top_experts(noisy, k)
    weights = noisy.gather(1, chosen).softmax(dim=1)
    spread = weights.new_zeros(noisy.shape).scatter(1, chosen, weights)
    if deviation is None or k == noisy.shape[1]:
        load = torch.zeros_like(spread).scatter(1, chosen, 1.0).sum(dim=0)
    else:
        load = chosen_probability(clean, noisy, deviation, k).sum(dim=0)
    return Gates(chosen, weights, spread.sum(dim=0), load)


def top_experts(logits, k: int) -> torch.Tensor:
    """The numbers of the k largest of each row of `logits` [tokens, experts]: [tokens, k], the
    largest first, of equal ones the lower first.  Raises ValueError for one that is not a number.
    """
    tokens, experts = logits.shape
    if logits.is_meta:
        in_turn = torch.arange(tokens * k, device="cpu") % experts
        return in_turn.view(tokens, k).to(logits.device)
    if logits.isnan().any():
        raise ValueError("logits of a gate are numbers, and some are nan")
    return logits.detach().sort(dim=1, descending=True, stable=True).indices[:, :k]


def chosen_probability(clean, noisy, deviation, k: int) -> torch.Tensor:
    """P(x, i) [tokens, experts]: how likely expert i is among the k < experts of token x if its
    noise alone is drawn again: Phi((clean - the k-th largest of the others) / deviation)."""
    first = top_experts(noisy, k + 1)
    ranked = noisy.gather(1, first)
    among = torch.zeros_like(noisy, dtype=torch.bool).scatter(1, first[:, :k], True)
    threshold = torch.where(among, ranked[:, k:], ranked[:, k - 1 : k])
    return torch.special.ndtr((clean - threshold) / deviation)


def squared_variation(x) -> torch.Tensor:
    """The squared coefficient of variation of x [experts]: its variance by its squared mean."""
    return x.var(correction=0) / (x.mean() ** 2 + EPSILON)
