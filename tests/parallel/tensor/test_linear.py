"""Layers cut by outputs and inputs: values and slopes of everything are those of the whole."""

import os
import random
import signal

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.parallel.tensor import MLP, ColumnLinear, RowLinear, whole_state_dict
from course.worlds import RankError, run
from tests.parallel.tensor import serial
from tests.parallel.tensor.serial import compared, drawn, slope_errors, some_cuts, worst
from tests.worlds.simulator.clusters import switched


def random_mlps(comm, count):
    draw, errors = random.Random(comm.size), []
    for number in range(count):
        sizes = [draw.randint(1, 9) for _ in range(3)]
        whole = serial.made(serial.MLP, *sizes, bias=draw.random() < 0.7, seed=number)
        hidden = some_cuts(draw, sizes[1], comm.size) if draw.random() < 0.5 else None
        algorithm = draw.choice(["auto", "ring", "recursive_doubling"])
        mine = MLP(comm, whole.up, whole.down, cuts=hidden, algorithm=algorithm)
        for _ in range(5):
            shape = [*[draw.randint(0, 3) for _ in range(draw.randint(0, 2))], draw.randint(0, 5)]
            rows = some_cuts(draw, shape[-1], comm.size) if draw.random() < 0.5 else None
            x = drawn(*shape, sizes[0], seed=draw.randint(0, 99))
            if x.dim() > 2:
                x = x.transpose(0, 1).contiguous().transpose(0, 1)
            bad = worst(compared(comm, whole, mine, x, rows))
            errors += [(sizes, hidden, shape, rows, bad)] if bad else []
    return errors


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_an_mlp_of_any_size_cut_anyhow_is_the_whole_one(ranks):
    assert run(random_mlps, ranks, 8, timeout=60) == [[]] * ranks


@pytest.mark.parametrize("ranks", [5, 8])
def test_on_more_ranks_of_an_imagined_cluster_and_more_than_features(ranks):
    assert run(random_mlps, ranks, 3, on=switched(ranks)) == [[]] * ranks


def all_reduces(comm):
    """Messages, in all-reduces by halving and doubling, of each way."""
    whole = serial.made(serial.MLP, 6, 8, 6)
    mine, counts = MLP(comm, whole.up, whole.down, algorithm="recursive_doubling"), []
    for trained in (True, False):
        x = drawn(4, 6).requires_grad_(trained)
        start = comm.meter.sent_messages
        y = mine(x)
        between = comm.meter.sent_messages
        y.sum().backward()
        counts.append((between - start, comm.meter.sent_messages - between))
    with torch.no_grad():
        start = comm.meter.sent_messages
        mine(x)
    return counts, comm.meter.sent_messages - start


def test_one_all_reduce_there_and_one_back_and_none_back_to_data():
    assert run(all_reduces, 4, timeout=10) == [([(2, 2), (2, 0)], 2)] * 4


def uses(comm):
    """What real programs do with a layer, each against the whole one."""
    whole = serial.made(serial.MLP, 3, 5, 3)
    mine, errors = MLP(comm, whole.up, whole.down), {}
    x, rows = drawn(2, 4, 3), (0, *[1] * (comm.size - 1), 4)

    def checkpointed(net, x, rows):
        return checkpoint(net, x, rows, use_reentrant=False)

    for way in (None, rows):
        errors["checkpoint", way] = worst(compared(comm, whole, mine, x, way, checkpointed))
        doubled = nn.Sequential(whole, whole)
        parts = Deep(mine)
        bad = compared_deep(comm, doubled, whole, parts, mine, x, way)
        errors["deep", way] = worst(bad)
        frozen = [mine.up.weight, whole.up.weight, mine.down.bias, whole.down.bias]
        for p in frozen:
            p.requires_grad_(False)
        errors["frozen", way] = worst(compared(comm, whole, mine, x, way))
        for p in frozen:
            p.requires_grad_(True)
        errors["thawed", way] = worst(compared(comm, whole, mine, x, way))
    return {key: bad for key, bad in errors.items() if bad}


class Deep(nn.Module):
    """Two losses of a layer used twice, and two backwards."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, *rows):
        return self.layer(self.layer(x, *rows), *rows)


def compared_deep(comm, doubled, whole, parts, mine, x, rows):
    here = slice(None) if rows is None else slice(*rows[comm.rank : comm.rank + 2])
    for net, args, own in ((doubled, (), x), (parts, (rows,), x[:, here])):
        net.zero_grad()
        y = net(own, *args)
        y.square().sum().backward(retain_graph=True)
        (3 * y.sin()).sum().backward()
    return slope_errors(mine, whole, comm.rank)


def test_checkpoints_frozen_layers_and_two_backwards_of_a_layer_used_twice():
    assert run(uses, 3, timeout=20) == [{}] * 3


def descended(comm):
    """The whole weights after four steps, with whole rows and cut ones in turns; sums are added up
    in one order in every world."""
    whole = serial.made(serial.MLP, 3, 5, 3)
    mine, rows = MLP(comm, whole.up, whole.down, algorithm="ring"), (0, 1, *[4] * (comm.size - 1))
    for step in range(4):
        x, way = drawn(4, 3, seed=step), rows if step % 2 else None
        own = x if way is None else x[way[comm.rank] : way[comm.rank + 1]]
        mine.zero_grad()
        mine(own, way).square().sum().backward()
        with torch.no_grad():
            for p in mine.parameters():
                p -= 0.05 * p.grad
    return list(whole_state_dict(mine).values())


def test_all_ranks_end_with_the_same_bits():
    first, *others = run(descended, 3, timeout=10)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def second_slope(comm):
    """The slope of the square of a slope, as penalties take it."""
    whole = serial.made(serial.MLP, 3, 5, 2)
    mine = MLP(comm, whole.up, whole.down)
    for net in (whole, mine):
        x = drawn(4, 3).requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sin().sum(), x, create_graph=True)
        slope.square().sum().backward()
    return worst(slope_errors(mine, whole, comm.rank))


def test_a_penalty_on_slopes_is_that_of_the_whole():
    assert run(second_slope, 3, timeout=10) == [{}] * 3


def halves(comm):
    """Layers of bfloat16, and float32 ones under autocast, run and keep their dtypes."""
    x, dtypes = drawn(4, 6).bfloat16(), []
    whole = serial.made(serial.MLP, 6, 5, 6)
    mine = MLP(comm, whole.up, whole.down).bfloat16()
    y = mine(x)
    y.sum().backward()
    error = float((y - whole.bfloat16()(x)).detach().abs().max())
    with torch.autocast("cpu", torch.bfloat16):
        z = MLP(comm, whole.float().up, whole.down)(x.float().requires_grad_())
    z.float().sum().backward()
    dtypes += [y.dtype, mine.up.weight.grad.dtype, z.dtype]
    return dtypes, error


def test_other_dtypes():
    for dtypes, error in run(halves, 2, timeout=10):
        assert dtypes == [torch.bfloat16] * 3
        assert error < 0.5


def from_the_outside(comm, kind):
    linear, other = nn.Linear(6, 4), nn.Linear(5, 3)
    made = {
        "kind": lambda: ColumnLinear(comm, nn.Conv1d(2, 2, 1)),
        "row": lambda: RowLinear(comm, linear)(torch.ones(2, 6)),
        "fit": lambda: MLP(comm, linear, other),
        "blocks": lambda: ColumnLinear(comm, linear, blocks=3),
        "cuts": lambda: RowLinear(comm, linear, (0, 3, 5)),
        "rows": lambda: ColumnLinear(comm, linear)(torch.ones(3, 6), (0, 2, 4)),
    }
    made[kind]()


@pytest.mark.parametrize("kind, sentence", [
    ("kind", "rank 0: what is cut here is a Linear, not Conv1d"),
    ("row", "rank 0: a row layer takes its part of the inputs, 3 of 6: not 6"),
    ("fit", "rank 0: 4 hidden features come up, and 5 go down"),
    ("blocks", "rank 0: 4 outputs are not 3 equal blocks"),
    ("cuts", r"rank 0: the cuts of axis 0 go up from 0 to 6: not \(0, 3, 5\)"),
    ("rows", r"rank 0: of rows cut at \(0, 2, 4\) it has 2"),
])  # fmt: skip
def test_what_does_not_fit_is_said_in_a_sentence(kind, sentence):
    with pytest.raises(RankError, match=sentence):
        run(from_the_outside, 2, kind, timeout=10)


def killed(comm, when):
    whole = serial.made(serial.MLP, 3, 5, 3)
    mine = MLP(comm, whole.up, whole.down)
    rows = (0, 1, 2, 4) if when == "cut" else None
    x = drawn(1 + comm.rank // 2 if rows else 4, 3).requires_grad_()
    y = mine(x, rows)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    y.sum().backward()


@pytest.mark.parametrize("when", ["cut", "whole"])
@pytest.mark.parametrize("checked", [True, False])
def test_a_killed_rank_is_named(when, checked):
    with pytest.raises(RankError, match="rank 1 was ended by SIGKILL"):
        run(killed, 3, when, timeout=10, checked=checked)
