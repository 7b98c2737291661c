"""A sum over ranks is a mean at a rate as many times as large; unequal starts stay apart."""

import torch

from course.classroom.averaging_paths import all_paths, path
from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.learning.training.digits import SEEDS, digit_split
from course.worlds import run, simulated

SPLIT = digit_split(torch.float64)
WAYS = {"mean": ("mean", 1.0, False), "sum": ("sum", 0.5, False), "unequal": ("mean", 1.0, True)}


def on(ranks):
    return simulated(one_switch(ranks, FREE, FDR))


def test_every_way_has_a_path_for_every_seed():
    found = run(all_paths, 2, SPLIT, WAYS, checked=False)
    assert list(found[0]) == list(WAYS)
    mean, added, unequal = ([losses for losses, _ in found[0][name]] for name in WAYS)
    assert len(mean) == len(SEEDS) and len(mean[0]) == 20 and mean[0][-1] < mean[0][0]
    assert torch.allclose(torch.tensor(mean), torch.tensor(added), rtol=1e-9)
    assert mean[0] != mean[1] and mean[0] != unequal[0]


def test_ranks_move_alike_and_begin_alike_or_not():
    for unequal in (False, True):
        (one, moved), (other, also) = run(path, 2, SPLIT, 0, "mean", 1.0, unequal, 3, on=on(2))
        assert torch.allclose(moved, also, atol=1e-12) and moved.abs().max() > 1e-3
        assert (one == other) is not unequal and len(one) == 3
