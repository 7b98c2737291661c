"""Picks by hand: the highest, those that are far apart, and the labels that they took."""

import math

import pytest
import torch

from course.learning.acquisition.picks import highest, labels_to_reach, spread_out


def test_the_highest_first_and_of_equals_the_lowest_row():
    scores = torch.tensor([1.0, 3.0, 2.0, 3.0, -math.inf])
    assert highest(scores, 4).tolist() == [1, 3, 2, 0]
    assert highest(torch.zeros(1000), 5).tolist() == [0, 1, 2, 3, 4]
    assert highest(scores, 0).tolist() == []


def test_those_far_apart_by_hand():
    #          5      4     3     2    1    of the list; the last row is not on it
    scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    x = torch.tensor([[0.0], [0.1], [7.0], [6.9], [3.0], [100.0]])
    assert spread_out(scores, x, 3, 5).tolist() == [0, 2, 4]
    assert spread_out(scores, x, 3, 3).tolist() == [0, 2, 1]
    assert spread_out(scores, x, 2, 6).tolist() == [0, 5]


def test_twins_come_last_but_no_row_comes_twice():
    x = torch.zeros(4, 2)
    assert sorted(spread_out(torch.arange(4.0), x, 4, 4).tolist()) == [0, 1, 2, 3]


def test_a_short_list_of_k_is_the_highest():
    generator = torch.Generator().manual_seed(0)
    scores, x = torch.rand(50, generator=generator), torch.rand(50, 3, generator=generator)
    assert set(spread_out(scores, x, 9, 9).tolist()) == set(highest(scores, 9).tolist())


def test_labels_between_two_rounds():
    labels, errors = [20, 40, 60], [0.5, 0.3, 0.1]
    assert labels_to_reach(0.2, labels, errors) == pytest.approx(50)
    assert labels_to_reach(0.3, labels, errors) == 40
    assert labels_to_reach(0.9, labels, errors) == 20
    assert labels_to_reach(0.05, labels, errors) == math.inf


def test_the_first_time_counts_where_errors_rise_again():
    assert labels_to_reach(0.2, [10, 20, 30], [0.4, 0.2, 0.3]) == 20


@pytest.mark.parametrize(
    ("scores", "k", "sentence"),
    [
        (torch.zeros(2), 3, "3 rows cannot be chosen from 2 of 2"),
        (torch.zeros(2), -1, "-1 rows cannot be chosen"),
        (torch.zeros(2, 2), 1, r"one number for each row, none nan, not \[2, 2\]"),
        (torch.tensor([math.nan]), 1, "none nan"),
    ],
)
def test_what_cannot_be_chosen(scores, k, sentence):
    with pytest.raises(ValueError, match=sentence):
        highest(scores, k)


def test_a_short_list_is_no_shorter_than_k_and_no_longer_than_the_rows():
    for shortlist in (1, 5):
        with pytest.raises(ValueError, match=f"2 rows cannot be chosen from {shortlist} of 4"):
            spread_out(torch.zeros(4), torch.zeros(4, 1), 2, shortlist)
