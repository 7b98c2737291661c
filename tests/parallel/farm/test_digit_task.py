"""Training that is stopped and goes on is training that went on."""

import pytest
import torch

from course.learning.training.digits import digit_split
from course.parallel.farm.digit_task import Candidate, DigitTask


@pytest.mark.parametrize("parts", [(70,), (30, 40), (1, 0, 69)])
def test_stopped_and_gone_on_is_the_same_to_the_last_bit(parts):
    task, candidate = DigitTask(digit_split()), Candidate(0.1, batch=16, seed=3)
    wanted, whole = task(candidate, None, 70)
    state = None
    for steps in parts:
        loss, state = task(candidate, state, steps)
    assert loss == wanted < 1 and state.steps == 70
    for name, weight in state.weights.items():
        assert torch.equal(weight, whole.weights[name])


def test_a_seed_is_another_network_in_another_order():
    task = DigitTask(digit_split())
    assert task(Candidate(0.1), None, 5)[0] != task(Candidate(0.1, seed=1), None, 5)[0]
