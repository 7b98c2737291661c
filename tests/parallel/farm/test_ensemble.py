"""An ensemble of networks for digits: its prediction is the mean, and better than its members'."""

import pytest
import torch
from torch import nn

from course.learning.training.digits import SEEDS, digit_net, digit_split, judge
from course.parallel.farm.digit_task import Candidate, DigitTask
from course.parallel.farm.ensemble import Ensemble
from course.parallel.farm.farm import farm
from course.worlds import run


def test_the_mean_of_probabilities_by_hand():
    one, two = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.2, 0.8]]).log()
    told = Ensemble([nn.Module(), nn.Module()])
    for member, values in zip(told.members, (one, two)):
        member.forward = lambda x, values=values: values + 3  # logits of any offset
    torch.testing.assert_close(told(None).exp(), torch.tensor([[0.55, 0.45]]))


def test_no_members_predict_nothing():
    with pytest.raises(ValueError, match="an ensemble has 1 member at least, not 0"):
        Ensemble([])


def members(comm, split):
    task = DigitTask(split)
    return farm(comm, lambda seed: task(Candidate(0.1, seed=seed), None, 96), SEEDS)


def test_five_seeds_together_are_better_than_each_alone_on_average():
    split, nets = digit_split(), []
    for seed, outcome in zip(SEEDS, run(members, 3, split)[0], strict=True):
        nets.append(digit_net(seed))
        nets[-1].load_state_dict(outcome.value[1].weights)
    alone = [judge(net, split.test) for net in nets]
    together = judge(Ensemble(nets), split.test)
    assert together.loss < sum(each.loss for each in alone) / len(alone)
    assert together.error < sum(each.error for each in alone) / len(alone)
