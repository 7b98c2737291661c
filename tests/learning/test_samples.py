import math

import pytest
import torch

from course.learning.samples import (
    check_above_zero,
    check_not_negative,
    check_samples,
)

ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_finite_rows_pass_with_any_strides():
    check_samples("patches", ROWS, least=2)
    check_samples("patches", ROWS.T[:, :1].double())


@pytest.mark.parametrize(
    ("rows", "least", "sentence"),
    [
        (ROWS[0], 1, r"features must be \[1 or more, 1 or more\], not \[2\]"),
        (ROWS[None], 1, r"not \[1, 2, 2\]"),
        (ROWS[:0], 1, r"not \[0, 2\]"),
        (ROWS[:, :0], 1, r"not \[2, 0\]"),
        (ROWS[:1], 2, r"\[2 or more, 1 or more\], not \[1, 2\]"),
        (ROWS.int(), 1, "features must be floating point, not torch.int32"),
        (ROWS.log().log(), 1, "features must be finite numbers, and some are nan or infinite"),
    ],
)
def test_other_rows_are_refused(rows, least, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_samples("features", rows, least)


@pytest.mark.parametrize(
    ("check", "least", "below", "rule"),
    [
        (check_above_zero, 1e-9, 0.0, "steps must be above 0, not 0.0"),
        (check_above_zero, 1e-9, math.nan, "steps must be above 0, not nan"),
        (check_not_negative, 0, -0.5, "steps must be 0 or more, not -0.5"),
        (check_not_negative, 0, math.nan, "steps must be 0 or more, not nan"),
    ],
)
def test_a_number_below_the_least_is_refused(check, least, below, rule):
    check("steps", least)
    with pytest.raises(ValueError, match=f"^{rule}$"):
        check("steps", below)
