import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course.cluster.planning.transformer import Transformer
from course.learning.training.letters import letter_loss

SIZES = Transformer(16, 4, 5, 8, symbols=11)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_any_number_of_stages_is_the_same_network(stages):
    letters = torch.arange(24).view(3, 8) % 11
    whole, x = SIZES.stages(1)[0], letters
    for stage in SIZES.stages(stages):
        x = stage(x)
    assert torch.equal(x, whole(letters)) and x.shape == (3, 8, 11)
    assert sum(p.numel() for p in whole.parameters()) == SIZES.weights


def test_a_letter_does_not_see_those_behind_it():
    net, letters = SIZES.stages(1)[0], torch.zeros(1, 8, dtype=torch.long)
    other = letters.clone()
    other[0, 5] = 3
    same = (net(letters) == net(other)).all(dim=(0, 2))
    assert same.tolist() == [True] * 5 + [False] * 3


def test_flops_are_those_of_torch():
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        net, letters = SIZES.stages(1)[0], torch.zeros(2, 8, dtype=torch.long)
        scores = net(letters)
    head = 2 * SIZES.features * SIZES.symbols
    assert counter.get_total_flops() == 16 * (SIZES.blocks * SIZES.block_flops + head)
    assert letter_loss(scores, letters).shape == ()


def test_about_six_operations_for_each_weight():
    wide = Transformer(4096, 32, 8, 64)
    assert wide.letter_flops == pytest.approx(6 * wide.weights, rel=0.02)
