"""Choose rows by their scores, so that it does not depend on luck which of equal ones are chosen.

`highest` takes the best alone; `spread_out` avoids that all of them tell the same; and
`labels_to_reach` says what a choice was worth.
"""

import math

import torch


def highest(scores, k):
    """The rows of the `k` highest `scores` [rows], the highest first: int64 [k].

    Of equal scores the lowest row comes first.
    """
    _check(scores, k, len(scores))
    return scores.sort(descending=True, stable=True).indices[:k]


def spread_out(scores, x, k, shortlist):
    """`k` of the `shortlist` highest `scores` [rows] that are far apart in x [rows, numbers].

    First the highest, then always the one whose nearest chosen row is farthest away: int64 [k].
    Costs k distances for each row of the short list.  Source: Gonzalez 1985, «Clustering to
    minimize the maximum intercluster distance»; Sener and Savarese 2018, arXiv 1708.00489.
    """
    _check(scores, k, shortlist)
    listed = highest(scores, shortlist)
    chosen, nearest = [], torch.full((shortlist,), math.inf, dtype=torch.float64)
    for _ in range(k):
        chosen.append(int(nearest.argmax()))  # the first of equals, which has the highest score
        away = (x[listed] - x[listed[chosen[-1]]]).double().norm(dim=1)
        nearest = nearest.minimum(away)
        nearest[chosen] = -math.inf
    return listed[chosen]


def labels_to_reach(target, labels, errors):
    """How many labels it took until an error of `target` or less: a straight line between two
    rounds; inf where it was never reached.

    `labels` and `errors` are what each round had, in order.
    """
    for number, error in enumerate(errors):
        if error <= target:
            if number == 0:
                return float(labels[0])
            share = (errors[number - 1] - target) / (errors[number - 1] - error)
            return labels[number - 1] + float(share) * (labels[number] - labels[number - 1])
    return math.inf


def _check(scores, k, among):
    if scores.dim() != 1 or scores.isnan().any():
        raise ValueError(f"scores are one number for each row, none nan, not {list(scores.shape)}")
    if not 0 <= k <= among <= len(scores):
        raise ValueError(f"{k} rows cannot be chosen from {among} of {len(scores)}")
