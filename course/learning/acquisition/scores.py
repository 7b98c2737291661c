"""How confused is a predictor about each row?  What it would be told about them is worth most.

`entropy` and `margin` ask one predictor, `divergence` asks several whether they agree.
"""

import torch

from course.learning.samples import check_finite


def entropy(probabilities):
    """-sum of p ln p of each of `probabilities` [rows, classes], in nats: [rows]; 0 is certain.

    Source: Shannon 1948; Settles 2009, «Active learning literature survey», section 3.1.
    """
    _check(probabilities, ("rows", "classes"))
    return torch.special.entr(probabilities).sum(dim=1)


def margin(probabilities):
    """The likeliest class's probability less the second's, of `probabilities` [rows, classes]:
    [rows]; the *smallest* are the most confused.

    Source: Scheffer, Decomain and Wrobel 2001, «Active hidden Markov models».
    """
    _check(probabilities, ("rows", "classes"))
    first, second = probabilities.topk(2, dim=1).values.T
    return first - second


def divergence(members):
    """How far the predictions `members` [members, rows, classes] of a committee are apart, in nats:
    [rows]; 0 where all say the same, however uncertain they are.

    The entropy of their mean less the mean of their entropies, which is their mean Kullback-Leibler
    divergence from their mean.  Source: McCallum and Nigam 1998, «Employing EM and pool-based
    active learning for text classification».
    """
    _check(members, ("members", "rows", "classes"))
    apart = torch.special.entr(members).sum(dim=2).mean(dim=0)
    return (entropy(members.mean(dim=0)) - apart).clamp_min(0)  # rounding may take it below 0


def _check(probabilities, axes):
    shape = list(probabilities.shape)
    if len(shape) != len(axes) or shape[-1] < 2:
        raise ValueError(f"probabilities are [{', '.join(axes)}] of 2 classes or more, not {shape}")
    check_finite("probabilities", probabilities)
    off = (probabilities.sum(dim=-1) - 1).abs()
    if (probabilities < 0).any() or (off > 1e-3).any():
        raise ValueError("probabilities of a row are 0 or more and add up to 1: apply a softmax")
