"""What is saved on p ranks is the whole, and any number of ranks loads its parts of it."""

import pytest
import torch
from torch import nn

from course.parallel.tensor import (
    MLP,
    HeadAttention,
    VocabEmbedding,
    load_whole_state_dict,
    whole_state_dict,
)
from course.worlds import RankError, run
from tests.parallel.tensor import serial
from tests.parallel.tensor.serial import part_of

PARTS = {"mlp": (serial.MLP, 3, 5, 4), "attention": (serial.Attention, 6, 3)}


def whole_net(seed):
    net = nn.ModuleDict({name: serial.made(*made, seed=seed) for name, made in PARTS.items()})
    net["embedding"] = serial.made(nn.Embedding, 7, 2, seed=seed)
    net["norm"] = nn.BatchNorm1d(3).double()
    net["again"] = net["mlp"]
    return net


def cut_net(comm, net):
    mlp, attention = net["mlp"], net["attention"]
    mine = nn.ModuleDict({"mlp": MLP(comm, mlp.up, mlp.down), "norm": net["norm"]})
    mine["attention"] = HeadAttention(comm, attention.qkv, attention.out, 3)
    mine["embedding"] = VocabEmbedding(comm, net["embedding"])
    mine["again"] = mine["mlp"]
    return mine


def saved(comm):
    return whole_state_dict(cut_net(comm, whole_net(seed=1)))


def loaded(comm, state):
    """Whether every rank has its parts, and saves what it was given."""
    mine, whole = cut_net(comm, whole_net(seed=2)), whole_net(seed=3)
    told = load_whole_state_dict(mine, state)
    whole.load_state_dict(state)
    theirs = dict(whole.named_parameters())
    right = [torch.equal(p, part_of(mine, name, theirs[name], comm.rank))
             for name, p in mine.named_parameters()]  # fmt: skip
    again = whole_state_dict(mine)
    same = all(torch.equal(again[key], state[key]) for key in state)
    return all(right) and same and again.keys() == state.keys() and not told.missing_keys


def test_saved_on_any_number_of_ranks_and_loaded_on_any_other():
    expected = whole_net(seed=1).state_dict()
    for writers, readers in ((1, 4), (4, 3), (3, 2), (2, 1)):
        for state in run(saved, writers, timeout=20):
            assert state.keys() == expected.keys()
            assert all(torch.equal(state[key], expected[key]) for key in expected)
        assert run(loaded, readers, state, timeout=20) == [True] * readers


def partly(comm):
    """A state dict without some of the parameters, and the parameters of a single layer."""
    mine = cut_net(comm, whole_net(seed=2))
    state = {key: x for key, x in whole_net(seed=1).state_dict().items() if "attention" in key}
    told = load_whole_state_dict(mine, state, strict=False)
    return len(told.missing_keys), list(whole_state_dict(mine["embedding"]))


def test_a_part_of_a_state_dict():
    missing = len(whole_net(0).state_dict()) - 4 - 1  # a count of batches may be missing
    assert run(partly, 2, timeout=10) == [(missing, ["weight"])] * 2


def wrong(comm, shape, strict):
    mine = cut_net(comm, whole_net(seed=2))
    state = {} if shape is None else {"mlp.up.weight": torch.ones(shape)}
    load_whole_state_dict(mine, state, strict=strict)


@pytest.mark.parametrize("shape, strict, sentence", [
    ((2, 3), False, r"rank 0: mlp.up.weight is whole with 5 along axis 0: not \[2, 3\]"),
    ((), False, r"rank 0: mlp.up.weight is whole with 5 along axis 0: not \[\]"),
    ((5, 4), False, "size mismatch for up.weight|size mismatch for mlp.up.weight"),
    (None, True, "Missing key"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(shape, strict, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, shape, strict, timeout=10)
