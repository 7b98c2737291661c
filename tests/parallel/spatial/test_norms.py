"""Norms of arrays: values, slopes and running statistics are those of the whole."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, group_norm

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import DistributedArray, part
from course.parallel.spatial.norms import local_batch_norm
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn, off
from tests.parallel.spatial.test_windows import kept

LAYERS = {
    "batch": lambda: nn.BatchNorm2d(4, momentum=0.3),
    "batch, plain": lambda: nn.BatchNorm2d(4, affine=False, track_running_stats=False),
    "group": lambda: nn.GroupNorm(2, 4),
    "linear": lambda: nn.Sequential(nn.Flatten(3), nn.Linear(6, 3)),
}
GRIDS = {1: (1, 1, 1, 1), 2: (1, 1, 2, 1), 3: (1, 1, 3, 1), 4: (2, 1, 2, 1)}


def compared(comm, name, grid):
    """Five uses with changing data, and one in evaluation: the largest errors of all of it."""
    torch.manual_seed(0)
    whole = LAYERS[name]().double()
    for p in whole.parameters():
        nn.init.normal_(p)
    mine, errors = copy.deepcopy(whole), []
    for use in range(6):
        for each in (whole, mine):
            each.train(use < 5)
            each.zero_grad()
        x = drawn(4, 4, 5, 6, seed=use).requires_grad_()
        array = part(comm, x.detach(), grid)
        array.local.requires_grad_()
        expected, found = whole(x), mine(array)
        factor = drawn(*expected.shape, seed=9)
        (expected * factor).sum().backward()
        (found * factor).sum().backward()
        back = DistributedArray(comm, array.local.grad, array.layout).gather()
        errors += [found.gather() - expected, back - x.grad]
        errors += [a.grad - b.grad for a, b in zip(mine.parameters(), whole.parameters())]
        errors += [(a - b).double() for a, b in zip(mine.buffers(), whole.buffers())
                   if a.is_floating_point()]  # fmt: skip
    return max(off(each) for each in errors)


def every_norm(comm):
    grids = {"group": (1, 1, comm.size, 1)}
    return {name: compared(comm, name, grids.get(name, GRIDS[comm.size])) for name in LAYERS}


@functools.cache
def errors(ranks):
    """Of all norms, in one run."""
    return run(every_norm, ranks, timeout=60)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("ranks", GRIDS)
def test_norms_are_those_of_the_whole(ranks, name):
    assert max(each[name] for each in errors(ranks)) < 1e-11


def of_each_part(comm):
    x = drawn(2, 3, 6, 4)
    array, weight = part(comm, x, (1, 1, comm.size, 1)), torch.ones(3).double().requires_grad_()
    before = comm.meter.sent_messages
    found = local_batch_norm(array, None, None, weight, None, training=True)
    silent = comm.meter.sent_messages == before
    own = batch_norm(array.local, None, None, training=True)
    found.sum().backward()
    return silent, torch.allclose(found.local.detach(), own), weight.grad.shape == (3,)


def test_local_statistics_send_nothing():
    assert run(of_each_part, 2, timeout=5) == [(True, True, True)] * 2


def of_halves(comm):
    """Whether types are those of torch, and values near them, of halves and weights in float32."""
    x, found = drawn(4, 4, 6, 6).bfloat16(), []
    for layer in (nn.BatchNorm2d(4), nn.GroupNorm(2, 4)):
        expected, mine = layer(x), layer(part(comm, x, (1, 1, comm.size, 1)))
        error = (mine.gather().float() - expected.float()).detach().abs().max()
        found.append((mine.dtype == expected.dtype, float(error) < 0.02))
    return found


def test_halves_stay_halves():
    assert run(of_halves, 2, on=simulated(one_switch(2, FREE, NDR))) == [[(True, True)] * 2] * 2


def alone(comm):
    nn.BatchNorm2d(3)(part(comm, drawn(1, 3, 1, 1), (1, 1, comm.size, 1)))


def test_one_value_a_channel_is_refused():
    sentence = r"a norm in training has more than one value a channel: not so in .*\(1, 3, 1, 1\)"
    with pytest.raises(RankError, match=sentence):
        run(alone, 2, on=simulated(one_switch(2, FREE, NDR)))


ZEROS, ONES = torch.zeros(4).double(), torch.ones(4).double()
MISFITS = {
    "weight": lambda x, one: batch_norm(x, None, None, one, training=True),
    "bias": lambda x, one: batch_norm(x, ZEROS, ONES, None, one),
    "running_mean": lambda x, one: batch_norm(x, one, ONES),
    "running_var": lambda x, one: batch_norm(x, ZEROS, one, training=True),
    "weight of groups": lambda x, one: group_norm(x, 1, one),
    "bias of groups": lambda x, one: group_norm(x, 1, ONES, one),
}


def misfit(comm, which):
    x = drawn(2, 4, 6, 4)
    with pytest.raises(RuntimeError):
        MISFITS[which](x, torch.ones(1).double())
    MISFITS[which](part(comm, x, (1, 1, comm.size, 1)), torch.ones(1).double())


@pytest.mark.parametrize("which", MISFITS)
def test_one_number_for_all_channels_is_refused(which):
    """As torch does: it would be broadcast."""
    sentence = f"each of 4 channels has its own {which.split()[0]}: there cannot be 1"
    with pytest.raises(RankError, match=sentence):
        run(misfit, 2, which, on=simulated(one_switch(2, FREE, NDR)))


def kept_of_norms(comm):
    x = part(comm, drawn(2, 4, 8 * comm.size, 8), (1, 1, comm.size, 1)).clone()
    x.local.requires_grad_()
    layers = nn.BatchNorm2d(4).double(), nn.GroupNorm(2, 4).double()
    return [kept(lambda layer=layer: layer(x).local) for layer in layers]


def test_a_norm_keeps_one_block_as_large_as_its_tile():
    """As torch's own does; what is kept for each channel or group beside it is small."""
    tile = 8 * 2 * 4 * 8 * 8
    assert all(tile <= each < 1.5 * tile for both in run(kept_of_norms, 2, timeout=20)
               for each in both)  # fmt: skip
