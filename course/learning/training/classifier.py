"""Tell two classes apart by a weighted sum of features, and judge it on groups it never saw.

Split by person or by photograph, not by picture: two pictures of one person are no strangers.
"""

from typing import NamedTuple

import torch

from course.learning.samples import check_not_negative, check_samples

DECAYS = 0.001, 0.01, 0.1, 1.0  # that `fit_by_halves` tries
MOST_STEPS = 30  # ten are enough; after 40, rounding would pass a missing minimum off as one


class Classifier(NamedTuple):
    """Logistic regression: `scores` are log odds of class 1, `predict` is 1 where they exceed 0.

    Features are standardised by the mean and spread [features] of the training part.
    """

    weights: torch.Tensor
    bias: torch.Tensor
    mean: torch.Tensor
    spread: torch.Tensor

    def scores(self, features):
        """Log odds of class 1 for `features` [count, features]: [count]."""
        check_samples("features", features)
        if features.shape[1] != len(self.weights):
            raise ValueError(f"{len(self.weights)} features were learned, not {features.shape[1]}")
        rows = features.to(self.weights)
        return (rows - self.mean) / self.spread @ self.weights + self.bias

    def predict(self, features):
        """The more likely class, 0 or 1, for `features` [count, features]: int64 [count]."""
        return (self.scores(features) > 0).long()

    def accuracy(self, features, labels):
        """The share of `features` [count, features] that get their label, 0 or 1, of `labels`."""
        _check_labels(features, labels)
        return (self.predict(features) == labels).double().mean().item()


def fit(features, labels, *, decay, tolerance=1e-9):
    """The Classifier of `features` [count, features] and `labels` [count] of 0 and 1.

    Minimises mean log loss + decay / 2 * |weights|^2 by Newton steps, until no part of the gradient
    exceeds `tolerance`; the bias is not decayed. Computes in float64 whatever the features are.
    Costs one solve of [features + 1, features + 1] per step. scikit-learn's C is 1 / (count *
    decay).
    Raises ArithmeticError where decay 0 leaves no minimum, as for separable classes.
    Source: Hastie, Tibshirani and Friedman 2009, section 4.4.1.
    """
    check_samples("features", features)
    _check_labels(features, labels)
    _check_training(features, labels, decay)
    mean, spread = features.double().mean(dim=0), features.double().std(dim=0, correction=0)
    rows = torch.nn.functional.pad((features.double() - mean) / spread, (0, 1), value=1.0)
    decays = torch.full_like(rows[0], decay)
    decays[-1] = 0
    weights = _newton(rows, labels.double(), decays, tolerance)
    parts = (weights[:-1], weights[-1], mean, spread)
    return Classifier(*(part.to(features.dtype) for part in parts))


def fit_by_halves(features, labels, groups, seed):
    """`fit` with that one of `DECAYS` by which each of the `halves` is best at telling the other's.

    Where `features` are the responses of a layer this is a linear probe: what the layer says to a
    weighted sum. Source: Alain and Bengio 2016, arXiv 1610.01644; halves of groups are ours.
    """
    half = halves(labels, groups, seed)

    def across(decay):
        pairs = (half, ~half), (~half, half)
        return sum(
            fit(features[one], labels[one], decay=decay).accuracy(features[other], labels[other])
            for one, other in pairs
        )

    return fit(features, labels, decay=max(DECAYS, key=across))


def held_out_accuracy(features, labels, groups, seed):
    """The accuracy of `fit_by_halves` on groups that had no part in it, a float.

    One of the `halves` learns weights and decay, the other scores them; then they swap, and the two
    accuracies are averaged.
    """
    half = halves(labels, groups, seed)
    accuracies = [
        fit_by_halves(features[learn], labels[learn], groups[learn], seed).accuracy(
            features[~learn], labels[~learn]
        )
        for learn in (half, ~half)
    ]
    return sum(accuracies) / 2


def halves(labels, groups, seed):
    """A bool [count]: half of the `groups` [count] of each class, `labels` [count] of 0 and 1."""
    half = torch.zeros_like(labels, dtype=torch.bool)
    for label in (0, 1):
        rows = (labels == label).nonzero().flatten()
        half[rows], _ = split(groups[rows], 0.5, seed)
    return half


def with_equal_shares(labels, groups, seed):
    """Rows, int64 [rows], of which both `halves` have as large a share of class 1 as `labels` have.

    Other halves differ in that share, and so in the best threshold, whatever a feature knows. As
    many rows as can be; those of the largest groups are left out first, and no group as a whole.
    """
    half, rows, share = halves(labels, groups, seed), [], labels.double().mean().item()
    order = (groups[:, None] == groups).tril(-1).sum(dim=1).argsort(stable=True)
    for side in half, ~half:
        kinds = [order[(side & (labels == label))[order]] for label in (0, 1)]
        size = min(len(kind) / part for kind, part in zip(kinds, (1 - share, share)))
        rows += [kind[: round(size * part)] for kind, part in zip(kinds, (1 - share, share))]
    return torch.cat(rows)


def split(groups, part, seed):
    """Training and test rows, two bool [count] tensors: every group is wholly on one side.

    `groups` [count] names the person or photograph of each row; `part` of the groups, at least
    one and never all, are for the test. The order of the rows does not matter.
    """
    names = _names(groups)
    every = sorted(set(names), key=str)
    if len(every) < 2:
        raise ValueError(f"a split needs 2 groups or more, not {len(every)}")
    if not 0 < part < 1:
        raise ValueError(f"the part for the test must be between 0 and 1, not {part}")
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    tested = {every[k] for k in order[: min(max(round(part * len(every)), 1), len(every) - 1)]}
    test = torch.tensor([name in tested for name in names])
    return ~test, test


def leaks(train_groups, test_groups):
    """The groups with rows on both sides, sorted: an empty list when the test is honest."""
    return sorted(set(_names(train_groups)) & set(_names(test_groups)), key=str)


def _newton(rows, labels, decays, tolerance):
    weights = torch.zeros_like(decays)
    for _ in range(MOST_STEPS):
        probability = torch.sigmoid(rows @ weights)
        gradient = rows.T @ (probability - labels) / len(rows) + decays * weights
        variance = probability * (1 - probability)
        hessian = (rows.T * variance) @ rows / len(rows) + torch.diag(decays)
        step = torch.linalg.solve_ex(hessian, gradient).result
        # A small gradient is not enough: without a minimum gradients shrink and steps do not.
        if gradient.abs().max() <= tolerance and step.abs().max() <= 1e-6:
            return weights
        weights = weights - _line_search(rows, labels, decays, weights, step) * step
    raise ArithmeticError(
        "classes that can be told apart without error, or features that repeat each other, "
        f"need a larger decay than {decays[0]:g}"
    )


def _line_search(rows, labels, decays, weights, step):
    """How much of the Newton step to take: the first of 1, 1/2, 1/4, ... that does not climb."""

    def cost(weights):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(rows @ weights, labels)
        return loss + (decays * weights**2).sum() / 2

    before, share = cost(weights), 1.0
    while cost(weights - share * step) > before + 1e-12 and share > 1e-6:
        share /= 2
    return share


def _check_labels(features, labels):
    if labels.shape != features.shape[:1]:
        raise ValueError(f"{len(features)} rows need as many labels, not {list(labels.shape)}")
    if not ((labels == 0) | (labels == 1)).all():
        raise ValueError(f"labels must be 0 or 1, not {labels.unique().tolist()}")


def _check_training(features, labels, decay):
    check_not_negative("the decay", decay)
    if len(labels.unique()) < 2:
        raise ValueError(f"a classifier learns from both classes, and all labels are {labels[0]:g}")
    constant = (features == features[0]).all(dim=0).nonzero().flatten().tolist()
    if constant:
        raise ValueError(f"every feature must vary in the training part, and {constant} do not")


def _names(groups):
    return groups.tolist() if torch.is_tensor(groups) else list(groups)
