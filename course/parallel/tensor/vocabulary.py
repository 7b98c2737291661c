"""A vocabulary cut over ranks: tokens to vectors, and the loss of logits that nobody gathers."""

import math

import torch
from torch import nn
from torch.nn import functional

from course.collectives import all_reduce
from course.parallel.array.replicated import summed
from course.parallel.tensor.cut import Cut, CutLayer, checked_cuts, lengths, required_layer
from course.parallel.tensor.sequence import scattered


class VocabEmbedding(CutLayer):
    """`embedding`, of which rank r has the vectors of the tokens cuts[r] to cuts[r + 1] (None: cut
    evenly).

    `embedding` is equal on all ranks, and stays as it is.  Raises ValueError for its options
    max_norm, scale_grad_by_freq and sparse.
    """

    def __init__(self, comm, embedding, cuts=None, *, algorithm="auto"):
        super().__init__(comm, algorithm)
        required_layer(comm, embedding, nn.Embedding)
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(embedding, option):
                raise ValueError(f"rank {comm.rank}: an embedding with {option} is not cut")
        self.cuts, self.padding_idx = checked_cuts(comm, len(embedding.weight), cuts), None
        self.keep("weight", embedding.weight, Cut(0, self.cuts))
        if embedding.padding_idx is not None:
            index = embedding.padding_idx - self.cuts[comm.rank]
            self.padding_idx = index if 0 <= index < len(self.weight) else None

    def forward(self, tokens, cuts=None):
        """The vectors [..., features] of `tokens` [..., rows], equal on all ranks; of this rank's
        rows [..., its own, features] if they are cut at `cuts`.

        Cost: an all-reduce of them; or a reduce-scatter, and an all-gather back.  Raises IndexError
        for tokens beyond the vocabulary.
        """
        index, mine = _own(self.comm, tokens, self.cuts)
        if len(self.weight):
            found = functional.embedding(index, self.weight, self.padding_idx)
            found = torch.where(mine[..., None], found, 0)
        else:
            found = self.weight.sum().expand(*tokens.shape, self.weight.shape[1])  # of none: 0
        if cuts is None:
            return summed(self.comm, found, self.algorithm)
        return scattered(self.comm, found, cuts)


def vocab_cross_entropy(comm, logits, target, cuts, *, weight=None, ignore_index=-100,
                        reduction="mean", label_smoothing=0.0, algorithm="auto"):  # fmt: skip
    """`functional.cross_entropy` of logits [..., classes], of which each rank has its own
    [..., cuts[r] to cuts[r + 1]]; target [...] and `weight` [classes] are whole on all ranks.

    The loss is equal on all ranks.  Cost: an all-reduce of a number a row, and one of two (three
    with smoothing); nothing back.  Raises ValueError and IndexError for what cannot be.
    Source: Shoeybi et al. 2019, section 3.
    """
    cuts = _checked(comm, logits, target, cuts, weight, reduction, label_smoothing)
    kept = target != ignore_index
    target = torch.where(kept, target, 0)
    wide = torch.promote_types(logits.dtype, torch.float32)
    weight = logits.new_ones(cuts[-1], dtype=wide) if weight is None else weight.to(wide)
    shares = _shares(comm, logits, target, cuts, weight if label_smoothing else None, algorithm)
    log_sum, counts = shares[0].log(), torch.where(kept, weight[target], 0)
    loss = torch.where(kept, log_sum - shares[1], 0) * counts
    if label_smoothing:
        spread = torch.where(kept, weight.sum() * log_sum - shares[2], 0)
        loss = torch.lerp(loss, spread / cuts[-1], label_smoothing)
    if reduction != "none":
        loss = loss.sum() / counts.sum() if reduction == "mean" else loss.sum()
    return loss.to(logits.dtype)


def _shares(comm, logits, target, cuts, weight, algorithm) -> torch.Tensor:
    """Of each row, over all ranks: the sum of exp(logit), the target's logit, and, given a
    `weight` for each class, the sum of weight * logit; of logits less the largest of the row."""
    top = logits.new_full(logits.shape[:-1], -math.inf)
    if logits.shape[-1]:
        top = logits.detach().amax(-1)
    all_reduce(comm, top, "max", algorithm=algorithm)
    logits = (logits - top[..., None]).to(torch.promote_types(logits.dtype, torch.float32))
    index, mine = _own(comm, target, cuts)
    own = logits.gather(-1, index[..., None])[..., 0] if logits.shape[-1] else logits.sum(-1)
    shares = [logits.exp().sum(-1), torch.where(mine, own, 0)]
    if weight is not None:
        shares.append((logits * weight[cuts[comm.rank] : cuts[comm.rank + 1]]).sum(-1))
    return summed(comm, torch.stack(shares), algorithm)


def _own(comm, tokens, cuts) -> tuple:
    """Where in this rank's part the `tokens` are, and which of them are there at all; of the others
    it says 0.  Raises IndexError for tokens that are in no part."""
    if not tokens.is_meta and tokens.numel():
        low, high = (int(each) for each in tokens.aminmax())
        if low < 0 or high >= cuts[-1]:
            found = low if low < 0 else high
            raise IndexError(f"rank {comm.rank}: tokens go from 0 to {cuts[-1] - 1}: not {found}")
    start, length = cuts[comm.rank], lengths(cuts)[comm.rank]
    index = tokens - start
    mine = (index >= 0) & (index < length)
    return torch.where(mine, index, 0), mine


def _checked(comm, logits, target, cuts, weight, reduction, label_smoothing) -> tuple:
    """The cuts of the classes.  Raises ValueError for arguments that cannot be."""
    cuts = checked_cuts(comm, cuts[-1], cuts)
    mine, given = lengths(cuts)[comm.rank], [cuts[-1]] if weight is None else list(weight.shape)
    rules = {
        f"logits are {[*target.shape, mine]}, for the targets {list(target.shape)} and the classes "
        f"of this rank: not {list(logits.shape)}": logits.shape == (*target.shape, mine),
        f"targets are whole numbers, not {target.dtype}": not target.is_floating_point(),
        f"a weight is given for each of {cuts[-1]} classes: not {given}": given == [cuts[-1]],
        f"reduction is mean, sum or none, not {reduction!r}": reduction in ("mean", "sum", "none"),
        f"label_smoothing lies from 0 to 1, not {label_smoothing}": 0 <= label_smoothing <= 1,
    }  # fmt: skip
    for rule, kept in rules.items():
        if not kept:
            raise ValueError(f"rank {comm.rank}: {rule}")
    return cuts
