"""The GPU starves when workers together take longer than it does."""

import math

import pytest

from course.cluster.storage.starvation import starvation


def test_reading_is_hidden_while_workers_suffice():
    assert starvation(0.3, 0.1, 3) == (0.1, 0.0, 3)
    assert starvation(0.3, 0.1, 2) == (0.15, pytest.approx(1 / 3), 3)
    assert starvation(0.31, 0.1, 3).workers_needed == 4
    assert starvation(0.0, 0.1, 1) == (0.1, 0.0, 1)


def test_without_workers_the_gpu_waits_for_every_batch():
    step_s, waiting, _ = starvation(0.1, 0.1, 0)
    assert (step_s, waiting) == (0.2, 0.5)


@pytest.mark.parametrize(
    "given", [(-1, 1, 1), (1, 0, 1), (1, 1, -1), (math.inf, 1, 1), (1, math.nan, 1)]
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(ValueError, match="reading takes 0 s or more, computing more than 0 s"):
        starvation(*given)
