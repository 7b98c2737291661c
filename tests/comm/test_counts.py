"""Whole numbers: what is one, what is none, and what is said then."""

import math

import numpy as np
import pytest
import torch

from course.comm.counts import required_count


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_come_back_as_integers(value):
    assert required_count(value, "tau") == 3 and type(required_count(value, "tau")) is int
    assert required_count(0, "steps", least=0) == 0


@pytest.mark.parametrize("value", [0, -1, 1.0, True, np.True_, None, "3", math.inf, torch.ones(1)])
def test_what_is_no_count_is_told_with_its_name_and_rank(value):
    with pytest.raises(ValueError) as caught:
        required_count(value, "tau", 2)
    assert str(caught.value) == f"rank 2: tau is a whole number, 1 or more, not {value!r}"


def test_a_sentence_without_a_rank_and_with_another_least():
    with pytest.raises(ValueError, match="^a bound is a whole number, 0 or more, not -1$"):
        required_count(-1, "a bound", least=0)
