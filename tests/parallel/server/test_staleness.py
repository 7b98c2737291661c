"""Rules, and the account of what was stale."""

import math

import pytest
import torch

from course.parallel.server.staleness import (
    Applied,
    Consistency,
    ServerLog,
    asynchronous,
    bounded,
    synchronous,
)


def test_rules_are_data():
    assert synchronous() == Consistency(synchronous=True, max_lead=0)
    assert bounded(3) == Consistency(synchronous=False, max_lead=3)
    assert asynchronous() == Consistency(synchronous=False, max_lead=math.inf)


@pytest.mark.parametrize("s", [0, -1, 1.5, True, None, math.inf])
def test_bounds_that_cannot_be(s):
    with pytest.raises(ValueError) as caught:
        bounded(s)
    rule = "a bound on staleness is a whole number, 1 or more"
    assert str(caught.value) == f"{rule}, not {s!r}"


def test_the_histogram_and_the_mean_by_hand():
    rows = [Applied(2, 0, 0), Applied(1, 0, 1), Applied(2, 1, 2), Applied(1, 0, 3)]
    account = ServerLog(torch.zeros(2), 4, rows, [], ())
    assert [row.staleness for row in rows] == [0, 1, 1, 3]
    assert account.histogram == [1, 2, 0, 1] and account.mean_staleness == 1.25


def test_of_no_gradients_there_is_nothing_to_tell():
    account = ServerLog(torch.zeros(2), 0, [], [], ())
    assert account.histogram == [] and math.isnan(account.mean_staleness)
