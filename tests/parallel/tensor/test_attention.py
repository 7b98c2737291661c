"""Attention by heads is that of all heads: even ones and uneven ones, and ranks without one."""

import copy
import functools

import pytest
import torch
from torch import nn

from course.parallel.tensor import HeadAttention
from course.parallel.tensor.cut import lengths
from course.worlds import RankError, run
from tests.parallel.tensor import serial
from tests.parallel.tensor.serial import compared, drawn, worst


def attended(comm, cases):
    errors = []
    for number, (heads, causal, dropout, cuts, shape) in enumerate(cases):
        whole = serial.made(serial.Attention, 2 * heads, heads, causal, dropout, seed=number)
        mine = HeadAttention(comm, whole.qkv, whole.out, heads, causal=causal, dropout=dropout,
                             cuts=cuts)  # fmt: skip
        rows = (0, *[1] * (comm.size - 1), shape[-1])
        for use in range(5):
            for way in (None, rows):
                x, use_of = drawn(*shape, 2 * heads, seed=use), functools.partial(alike, use)
                bad = worst(compared(comm, alike_whole(use, whole), mine, x, way, use_of))
                errors += [(heads, causal, dropout, cuts, use, way, bad)] if bad else []
    return errors


def alike(seed, net, *args):
    torch.manual_seed(seed)
    return net(*args)


def alike_whole(seed, net):
    """A net that draws as all ranks do."""
    net.register_forward_pre_hook(lambda *_: torch.manual_seed(seed) and None)
    return net


CASES = [
    # heads, causal, dropout, cuts, shape
    (1, True, 0.0, None, (2, 5)),
    (3, False, 0.0, None, (5,)),
    (5, True, 0.0, None, (2, 3, 4)),
    (3, True, 0.3, None, (2, 4)),
]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_some_heads_on_every_rank_are_all_heads(ranks):
    cases = [*CASES, (4, True, 0.0, (0, *[3] * (ranks - 1), 4), (2, 4))]
    assert run(attended, ranks, cases, timeout=60) == [[]] * ranks


def of_torch(comm):
    """The same weights in torch's own module."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(6, 3, batch_first=True).double()
    qkv = nn.Linear(6, 18).double()
    with torch.no_grad():
        qkv.weight.copy_(theirs.in_proj_weight)
        qkv.bias.copy_(theirs.in_proj_bias.normal_())
    mine, x = HeadAttention(comm, qkv, theirs.out_proj, 3), drawn(2, 5, 6)
    expected, _ = theirs(x, x, x, need_weights=False)
    twin = copy.deepcopy(mine)
    assert twin.comm is twin.qkv.comm is comm
    return serial.distance(twin(x), expected), lengths(mine.heads)


def test_it_is_torchs_own():
    for error, heads in run(of_torch, 2, timeout=10):
        assert error < 1e-12
        assert heads == [2, 1]


def wrong(comm, heads, features, three):
    HeadAttention(comm, nn.Linear(features, three), nn.Linear(features, features), heads)


@pytest.mark.parametrize("sizes, sentence", [
    ((4, 6, 18), "rank 0: 4 heads take equal parts of 6 features, and three times as many come: "
                 "not 18"),
    ((3, 6, 12), "rank 0: 3 heads take equal parts of 6 features, .*: not 12"),
])  # fmt: skip
def test_heads_that_do_not_fit_are_refused(sizes, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, *sizes, timeout=10)
