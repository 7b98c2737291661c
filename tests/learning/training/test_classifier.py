import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from course.learning.training.classifier import (
    DECAYS,
    Classifier,
    fit,
    fit_by_halves,
    halves,
    held_out_accuracy,
    leaks,
    split,
    with_equal_shares,
)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def two_clouds(count, features, apart, seed=0):
    """Overlapping classes on scales and origins that differ from feature to feature."""
    labels = torch.arange(count) % 3 % 2
    rows = drawn(count, features, seed=seed)
    rows[:, 0] += apart * labels
    mixed = rows @ drawn(features, features, seed=seed + 1)
    return mixed * torch.logspace(-3, 3, features).double() + 5, labels


@pytest.mark.parametrize("count, features", [(150, 1), (90, 7), (31, 60)])
@pytest.mark.parametrize("decay", [1e-3, 0.1])
def test_weights_and_bias_are_those_of_scikit_learn(count, features, decay):
    rows, labels = two_clouds(count, features, apart=1.5)
    ours = fit(rows, labels, decay=decay)
    theirs = LogisticRegression(C=1 / (count * decay), tol=1e-10, max_iter=100_000)
    make_pipeline(StandardScaler(), theirs).fit(rows.numpy(), labels.numpy())
    torch.testing.assert_close(ours.weights, torch.tensor(theirs.coef_[0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.bias, torch.tensor(theirs.intercept_[0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("tolerance", [1e-9, 1e-14])
def test_no_slope_is_left_where_it_settles(decay, tolerance):
    rows, labels = two_clouds(200, 5, apart=1.0)
    found = fit(rows, labels, decay=decay, tolerance=tolerance)
    weights, bias = found.weights.requires_grad_(), found.bias.requires_grad_()
    scores = found._replace(weights=weights, bias=bias).scores(rows)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.double())
    slopes = torch.autograd.grad(loss + decay / 2 * weights.square().sum(), (weights, bias))
    assert torch.hstack(slopes).abs().max() <= tolerance + 1e-15


def test_scores_are_log_odds_by_hand():
    by_hand = Classifier(*(torch.tensor(x) for x in ([2.0, -1.0], 0.5, [1.0, 0.0], [1.0, 4.0])))
    features = torch.tensor([[1.0, 0.0], [2.0, 4.0], [0.0, 8.0]])
    torch.testing.assert_close(by_hand.scores(features), torch.tensor([0.5, 1.5, -3.5]))
    assert by_hand.predict(features).tolist() == [1, 1, 0]
    assert math.isclose(by_hand.accuracy(features, torch.tensor([1, 0, 0])), 2 / 3)


def test_the_test_part_has_no_part_in_standardising():
    rows, labels = two_clouds(100, 4, apart=2.0)
    found = fit(rows, labels, decay=0.1)
    torch.testing.assert_close(found.mean, rows.mean(dim=0))
    far = rows[:5] + 1000
    torch.testing.assert_close(found.scores(far)[:2], found.scores(far[:2]))


def test_the_scale_of_a_feature_does_not_matter():
    rows, labels = two_clouds(100, 4, apart=2.0)
    shifted = rows * torch.tensor([1e-3, 1.0, 50.0, -2.0]).double() - 3
    before, after = fit(rows, labels, decay=0.1), fit(shifted, labels, decay=0.1)
    torch.testing.assert_close(after.scores(shifted), before.scores(rows))


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.uint8])
def test_labels_of_any_kind_and_features_in_float32(kind):
    rows, labels = two_clouds(120, 6, apart=2.0)
    exact, rounded = fit(rows, labels, decay=0.01), fit(rows.float(), labels.to(kind), decay=0.01)
    assert rounded.weights.dtype == rounded.scores(rows.float()).dtype == torch.float32
    torch.testing.assert_close(rounded.weights, exact.weights.float(), atol=1e-4, rtol=0)
    assert rounded.accuracy(rows, labels.to(kind)) == exact.accuracy(rows.float(), labels)


def test_more_features_than_rows_in_a_strided_view():
    rows, labels = two_clouds(40, 90, apart=1.0)
    found = fit(rows.T.contiguous().T, labels, decay=0.01)
    assert found.accuracy(rows, labels) == 1 and found.weights.isfinite().all()
    torch.testing.assert_close(found.weights, fit(rows, labels, decay=0.01).weights)


@pytest.mark.parametrize("decay", [1e-6, 1e-2, 10.0])
def test_separable_classes_settle_with_a_decay(decay):
    rows = torch.tensor([[-1000.0], [-1.0], [1.0], [1000.0]], dtype=torch.float64)
    found = fit(rows, torch.tensor([0, 0, 1, 1]), decay=decay)
    assert found.weights.isfinite().all() and found.predict(rows).tolist() == [0, 0, 1, 1]


def test_a_column_twice_shares_its_weight():
    rows, labels = two_clouds(60, 1, apart=1.0)
    found = fit(rows.repeat(1, 2), labels, decay=0.01)
    torch.testing.assert_close(found.weights[0], found.weights[1])


def test_a_step_that_would_climb_is_shortened():
    """Whole Newton steps jump to and fro for ever here: two rows lie far outside."""
    rows = [[0.0, -0.1], [-0.1, 0.1], [0.0, 27.7], [-5.4, -0.3], [0.1, -0.6], [-0.1, 0.2]]
    rows, labels = torch.tensor(rows, dtype=torch.float64), torch.tensor([0, 1, 0, 0, 1, 0])
    ours = fit(rows, labels, decay=1e-5)
    theirs = LogisticRegression(C=1e5 / 6, tol=1e-12, max_iter=100_000, solver="newton-cholesky")
    make_pipeline(StandardScaler(), theirs).fit(rows.numpy(), labels.numpy())
    torch.testing.assert_close(ours.weights, torch.tensor(theirs.coef_[0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "features",
    [
        [[0.0], [1.0], [2.0], [3.0]],
        [[0.0], [1.0], [1.0], [3.0]],
        [[2.0, 2.0], [3, 3], [2, 2], [3, 3]],
    ],
    ids=["apart", "touching", "a column twice"],
)
def test_without_decay_there_may_be_no_minimum(features):
    with pytest.raises(ArithmeticError, match="need a larger decay than 0"):
        fit(torch.tensor(features), torch.tensor([0, 0, 1, 1]), decay=0.0)


GROUPS = ["anna", "anna", "bo", "cy", "bo", "dee", "eve", "cy", "anna", "flo", "flo", "gil"]


@pytest.mark.parametrize("part", [0.01, 0.3, 0.5, 0.99])
@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_wholly_on_one_side(part, seed):
    train, test = split(GROUPS, part, seed)
    assert train.dtype == test.dtype == torch.bool and torch.equal(train, ~test)
    sides = [{g for g, here in zip(GROUPS, side, strict=True) if here} for side in (train, test)]
    assert not sides[0] & sides[1] and all(sides)
    assert len(sides[1]) == min(max(round(7 * part), 1), 6)


def test_a_seed_and_the_names_decide_a_split_and_the_order_of_rows_does_not():
    first, again, other = (split(GROUPS, 0.5, seed)[1] for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(split(GROUPS[::-1], 0.5, 0)[1], first.flip(0))


def test_groups_may_be_numbers_in_a_tensor():
    groups = torch.tensor([3, 1, 3, 2, 1, 2, 9])
    train, test = split(groups, 0.4, 0)
    assert leaks(groups[train], groups[test]) == []


def test_persons_by_number_and_photographs_by_name():
    groups = [3, "china", 3, 1, "camera", 2, "china"]
    train, test = split(groups, 0.5, 0)
    sides = [[g for g, here in zip(groups, side, strict=True) if here] for side in (train, test)]
    assert leaks(*sides) == [] and leaks(groups, [3, "china"]) == [3, "china"]


def test_groups_on_both_sides_are_named():
    assert leaks(["bo", *"zyxwvutsr"], ["dee", *"rstuvwxy", "y"]) == list("rstuvwxy")
    assert leaks(torch.tensor([1, 2]), torch.tensor([2, 2, 3])) == [2]


def in_groups(seed):
    """Features [120, 30], labels and groups: 12 groups of 10 rows, which differ more than rows."""
    groups, labels = torch.arange(120) // 10, torch.arange(120) // 60
    features = drawn(120, 30, seed=seed) + drawn(12, 30, seed=seed + 1)[groups]
    features[:, 0] += 2 * labels
    return features, labels, groups


def test_halves_have_half_of_the_groups_of_each_class():
    _, labels, groups = in_groups(0)
    half = halves(labels, groups, seed=3)
    assert leaks(groups[half], groups[~half]) == []
    assert [len(groups[half & (labels == label)].unique()) for label in (0, 1)] == [3, 3]


def test_halves_with_equal_shares_lose_the_rows_of_the_largest_groups():
    groups = torch.arange(400).sqrt().long() + 1  # from 3 to 39 rows
    labels = (groups % 3 == 0).long()
    for seed in range(10):
        rows = with_equal_shares(labels, groups, seed)
        half = halves(labels, groups, seed)
        assert torch.equal(halves(labels[rows], groups[rows], seed), half[rows])
        assert len(rows.unique()) == len(rows) and len(groups[rows].unique()) == 20
        for side in half, ~half:
            kept = side[rows]
            shown = labels[rows][kept].double().mean()
            assert abs(shown - labels.double().mean()) < 1 / kept.sum()
            whole = [(labels[side] == label).sum() == (labels[rows][kept] == label).sum()
                     for label in (0, 1)]  # fmt: skip
            assert any(whole)
            for label in 0, 1:
                sizes = groups[rows][kept & (labels[rows] == label)].unique(return_counts=True)[1]
                every = groups[side & (labels == label)].unique(return_counts=True)[1]
                lost = sizes < every
                if lost.any():
                    assert sizes.max() - sizes[lost].min() <= 1


def test_the_decay_is_the_one_by_which_the_halves_tell_each_other():
    chosen = set()
    for seed in range(6):
        features, labels, groups = in_groups(seed)
        half, right = halves(labels, groups, seed), {}
        for decay in DECAYS:
            one, other = (fit(features[side], labels[side], decay=decay) for side in (half, ~half))
            right[decay] = (other.accuracy(features[half], labels[half])
                            + one.accuracy(features[~half], labels[~half]))  # fmt: skip
        best = max(right, key=right.get)
        chosen.add(best)
        found, wanted = (
            fit_by_halves(features, labels, groups, seed),
            fit(features, labels, decay=best),
        )
        torch.testing.assert_close(found.weights, wanted.weights)
    assert len(chosen) > 1


def test_what_is_known_of_groups_by_heart_is_worth_nothing_held_out():
    groups = torch.arange(400) // 10
    labels = (groups % 3 == 0).long()
    known = torch.nn.functional.one_hot(groups).double() + 0.01 * drawn(400, 40)
    assert fit(known, labels, decay=DECAYS[0]).accuracy(known, labels) == 1
    assert held_out_accuracy(known, labels, groups, seed=0) < 0.75


def test_rows_that_are_scored_choose_neither_weights_nor_decay():
    features, labels, groups = in_groups(0)
    half = halves(labels, groups, seed=1)
    right = []
    for learn in half, ~half:
        found = fit_by_halves(features[learn], labels[learn], groups[learn], seed=1)
        right.append(found.accuracy(features[~learn], labels[~learn]))
    assert right[0] != right[1]
    assert math.isclose(held_out_accuracy(features, labels, groups, seed=1), sum(right) / 2)


def broken(value):
    rows = drawn(6, 2)
    rows[1, 1] = value
    return rows


def constant(column):
    rows = drawn(6, 3)
    rows[:, column] = 0.1
    return rows


def fitted():
    return fit(drawn(6, 2), LABELS, decay=1)


LABELS = torch.tensor([0, 1, 0, 1, 1, 0])
HALVES = LABELS / 2


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: fit(broken(math.nan), LABELS, decay=1), "features must be finite"),
        (lambda: fit(broken(math.inf), LABELS, decay=1), "features must be finite"),
        (lambda: fit(constant(2), LABELS, decay=1), r"must vary .*, and \[2\] do not"),
        (lambda: fit(drawn(6, 2), LABELS * 0, decay=1), "both classes, and all labels are 0"),
        (lambda: fit(drawn(6, 2), HALVES, decay=1), r"0 or 1, not \[0.0, 0.5\]"),
        (lambda: fit(drawn(5, 2), LABELS, decay=1), r"5 rows need as many labels, not \[6\]"),
        (lambda: fit(drawn(6), LABELS, decay=1), r"1 or more\], not \[6\]"),
        (lambda: fit(LABELS[:, None], LABELS, decay=1), "not torch.int64"),
        (lambda: fit(drawn(0, 2), LABELS[:0], decay=1), r"1 or more.* \[0, 2\]"),
        (lambda: fit(drawn(6, 2), LABELS, decay=-1), "0 or more, not -1"),
        (lambda: fit(drawn(6, 2), LABELS, decay=math.nan), "0 or more, not nan"),
        (lambda: fitted().predict(drawn(5, 3)), "2 features were learned, not 3"),
        (lambda: fitted().predict(broken(math.nan)), "features must be finite"),
        (lambda: fitted().accuracy(drawn(6, 2), LABELS + 1), r"0 or 1, not \[1, 2\]"),
        (lambda: split(["anna"] * 4, 0.5, 0), "2 groups or more, not 1"),
        (lambda: split(GROUPS, 1.0, 0), "between 0 and 1, not 1.0"),
        (lambda: split(GROUPS, 0, 0), "between 0 and 1, not 0"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
