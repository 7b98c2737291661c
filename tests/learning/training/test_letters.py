"""Letters know what was before them and where they are."""

import math

import torch
from torch import nn

from course.learning.training.letters import LETTERS, Attention, PlacedLetters, letter_loss


def test_a_letter_sees_itself_and_those_before_it():
    torch.manual_seed(0)
    attention, x = Attention(8, 2), torch.randn(1, 5, 8)
    other = x.clone()
    other[0, 3] += 1
    changed = (attention(other) - attention(x)).abs().amax(dim=-1)[0]
    assert torch.equal(changed > 1e-6, torch.tensor([False, False, False, True, True]))


def test_heads_look_apart():
    torch.manual_seed(0)
    one, two, x = Attention(8, 1), Attention(8, 2), torch.randn(1, 5, 8)
    two.load_state_dict(one.state_dict())
    assert (one(x) - two(x)).abs().max() > 1e-3


def test_the_same_letter_is_another_vector_in_another_place():
    torch.manual_seed(0)
    placed = PlacedLetters(4, 6)
    first, second = placed(torch.tensor([[7, 7]]))[0]
    assert torch.allclose(first - second, placed.place.weight[0] - placed.place.weight[1])
    assert (first - second).abs().max() > 1e-3


def test_scores_that_say_nothing_lose_the_logarithm_of_the_letters():
    following = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert math.isclose(letter_loss(torch.zeros(2, 3, LETTERS), following), math.log(LETTERS),
                        rel_tol=1e-6)  # fmt: skip
    sure = 100.0 * nn.functional.one_hot(following, LETTERS)
    assert letter_loss(sure, following) < 1e-6
