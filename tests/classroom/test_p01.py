"""The number that the check of `largest_rate_of_four` compares with."""

import math

import torch

from course.classroom.problems.p01_gradient_descent import largest_rate_of_four
from course.learning.images.photographs import photograph


def test_the_rate_of_four_is_two_over_the_largest_eigenvalue():
    grey = photograph("flower").double() - photograph("flower").double().mean()
    centre, parts = grey[1:-1, 1:-1], (grey[1:-1, :-2], grey[:-2, 1:-1])
    parts += grey[1:-1, 2:], grey[2:, 1:-1]
    second = torch.tensor([[2 * float((a * b).mean()) for a in parts] for b in parts])
    assert centre.shape == parts[3].shape
    largest = float(torch.linalg.eigvalsh(second)[-1])
    assert math.isclose(largest_rate_of_four(), 2 / largest, rel_tol=1e-5)
