"""Answers are compared by value, by shape, and with the slips that somebody foresaw."""

import pytest
import torch

from course.classroom.comparison import (
    close,
    compare,
    largest_difference,
    like,
    multiple,
    refuse,
)
from course.classroom.problems import Wrong

X, Y = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5])


def double(x):
    return 2 * x


def judged(answer, cases=((X,), (Y,))):
    slips = ((lambda x: x, "x came back."), (lambda x: x**2, "squared."))
    compare(answer, double, cases, slips, otherwise="something else.", shape_is="twice x")


def test_the_right_values_pass():
    judged(lambda x: x + x)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda x: x, "x came back"),
        (lambda x: x * x, "squared"),
        (lambda x: 3 * x, "something else"),
        (lambda x: None, "does the function end in return"),
        (lambda x: x[None], r"twice x has shape \[3\], not \[1, 3\]"),
        (lambda x: "2 x", "twice x is made of numbers, and '2 x' is not"),
        (lambda x: [None], r"twice x is made of numbers, and \[None\] is not"),
        (lambda x: {"x": 2}, "twice x is made of numbers, and {'x': 2} is not"),
        (lambda x: x.mul_(2), "what the function was given has changed"),
        (7, "a function is wanted"),
        (lambda x: 2 * x if len(x) > 1 else x, "x came back"),
    ],
)
def test_a_wrong_answer_is_told_by_its_slip(answer, sentence):
    with pytest.raises(Wrong, match=sentence):
        judged(answer)


def test_values_agree_up_to_a_share_of_the_right_one():
    assert close(X, X * (1 + 1e-9)) and not close(X, X * 1.001)
    assert close(100.0, 100.5, tolerance=0.01) and not close(X, X[None])
    assert close(1e-17, 0.0, least=1e-12) and not close(1e-17, 0.0)
    compare(lambda x: x + 1e-17, lambda x: x, [(0.0,)], otherwise="another.", least=1e-12)
    with pytest.raises(Wrong, match="another"):
        compare(lambda x: x + 1e-17, lambda x: x, [(0.0,)], otherwise="another.")
    assert multiple(3 * X, X) == 3 and multiple(X.flip(0), X) is None
    assert like([1, 2, 3], X).dtype == X.dtype
    with pytest.raises(Wrong, match="twice"):
        refuse(2.0, (1.0, "once."), (2.0, "twice."))


def test_the_largest_difference_is_that_of_any_number_of_any_pair():
    assert largest_difference([(X, X), (Y, Y + 0.25), (X, X - torch.tensor([0, 1, 0]))]) == 1
    assert largest_difference(iter([(X, X), (Y, Y + 0.25)])) == 0.25
