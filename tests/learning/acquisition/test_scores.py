"""Scores of confusion by hand, their bounds, and what has no score."""

import math

import pytest
import torch

from course.learning.acquisition.scores import divergence, entropy, margin

ROWS = torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]], dtype=torch.float64)


def chances(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).softmax(dim=-1)


def test_by_hand():
    mixed = -0.4 * math.log(0.4) - 0.6 * math.log(0.3)
    torch.testing.assert_close(entropy(ROWS), torch.tensor([math.log(2), mixed, 0.0]).double())
    torch.testing.assert_close(margin(ROWS), torch.tensor([0.0, 0.1, 1.0]).double())


def test_two_sure_members_that_differ_are_apart_and_two_unsure_ones_that_agree_are_not():
    sure, unsure = torch.eye(2).double(), torch.full((2, 2), 0.5).double()
    members = torch.stack([torch.stack([sure[0], unsure[0]]), torch.stack([sure[1], unsure[1]])])
    torch.testing.assert_close(divergence(members), torch.tensor([math.log(2), 0.0]).double())


def test_divergence_is_the_mean_kullback_leibler_divergence_from_the_mean():
    members = chances(5, 7, 4)
    whole = members.mean(dim=0)
    apart = (members * (members / whole).log()).sum(dim=2).mean(dim=0)
    torch.testing.assert_close(divergence(members), apart)


def test_one_member_agrees_with_itself_to_the_last_bit():
    assert divergence(chances(1, 50, 10)).tolist() == [0.0] * 50


def test_bounds():
    rows = chances(100, 10)
    assert ((entropy(rows) > 0) & (entropy(rows) < math.log(10))).all()
    assert ((margin(rows) > 0) & (margin(rows) < 1)).all()


@pytest.mark.parametrize(
    ("score", "given", "sentence"),
    [
        (entropy, ROWS[0], r"are \[rows, classes\] of 2 classes or more, not \[3\]"),
        (margin, ROWS[:, :1], r"of 2 classes or more, not \[3, 1\]"),
        (divergence, ROWS, r"are \[members, rows, classes\] .* not \[3, 3\]"),
        (entropy, ROWS.log(), "must be finite numbers"),
        (entropy, ROWS * 2, "add up to 1: apply a softmax"),
        (margin, torch.tensor([[1.5, -0.5]]), "0 or more"),
    ],
)
def test_what_is_no_probability(score, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        score(given)
