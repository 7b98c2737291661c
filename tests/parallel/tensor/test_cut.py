"""A cut says which part of a parameter a rank has, and puts the parts together again."""

import copy

import pytest
import torch
from torch import nn

from course.parallel.tensor.cut import Cut, CutLayer, checked_cuts, lengths
from course.worlds import RankError, run


@pytest.mark.parametrize("cut", [
    Cut(0, (0, 2, 2, 6)), Cut(1, (0, 3, 6)), Cut(0, (0, 1, 2), 3), Cut(1, (0, 0, 2), 3),
])  # fmt: skip
def test_parts_are_put_together_again(cut):
    x = torch.arange(36).view(6, 6)
    parts = [cut.part(x, rank) for rank in range(len(cut.cuts) - 1)]
    assert sum(part.numel() for part in parts) == 36
    assert torch.equal(cut.whole(parts), x)


def test_of_blocks_each_rank_has_its_part_of_each():
    names = torch.arange(6).repeat_interleave(1)  # q0 q1 k0 k1 v0 v1
    assert Cut(0, (0, 1, 2), 3).part(names, 1).tolist() == [1, 3, 5]
    assert lengths((0, 2, 2, 5)) == [2, 0, 3]


class Kept(CutLayer):
    def __init__(self, comm):
        super().__init__(comm, "ring")
        frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.keep("weight", nn.Parameter(torch.eye(4)), Cut(0, checked_cuts(comm, 4)))
        self.keep("bias", frozen)
        self.keep("none", None)


def kept(comm):
    layer = Kept(comm)
    twin = copy.deepcopy(nn.ModuleList([layer, layer]))
    with torch.no_grad():
        twin[0].weight.zero_()
    return (
        list(layer.weight.shape), layer.weight.is_contiguous(), layer.weight.sum().item(),
        layer.bias.requires_grad, layer.none, list(layer.cut), twin[0].comm is comm,
        twin[0] is twin[1], twin[1].weight.sum().item(), list(twin[0].state_dict()),
    )  # fmt: skip


def test_a_layer_keeps_its_part_and_a_copy_has_parameters_of_its_own():
    same = True, 1.0, False, None, ["weight"], True, True, 0.0, ["weight", "bias"]
    assert run(kept, 4, timeout=10) == [([1, 4], *same)] * 4


def wrong_cuts(comm, cuts):
    checked_cuts(comm, 4, cuts)


@pytest.mark.parametrize("cuts, sentence", [
    ((0, 4), r"rank 0: the cuts \(0, 4\) make 1 parts, and there are 2 ranks"),
    ((0, 3, 5), r"rank 0: the cuts of axis 0 go up from 0 to 4: not \(0, 3, 5\)"),
    ((0, 5, 4), r"rank 0: the cuts of axis 0 go up from 0 to 4: not \(0, 5, 4\)"),
])  # fmt: skip
def test_cuts_that_do_not_add_up_are_refused(cuts, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong_cuts, 2, cuts, timeout=10)
