"""Norms, clipping, LARS and LAMB see whole parameters, whatever part of them a rank has."""

import copy
import functools

import pytest
import torch
from torch import nn

from course.learning.training.large_batch import LAMB, LARS, groups
from course.parallel.tensor import (
    MLP,
    clip_grad_norm,
    grad_norm,
    whole_norms,
    whole_state_dict,
)
from course.worlds import RankError, run
from tests.parallel.tensor import serial
from tests.parallel.tensor.serial import distance, drawn
from tests.worlds.simulator.clusters import switched

OPTIMIZERS = {
    "lars": lambda net, **norms: LARS(groups(net, 0.1), 0.5, trust=0.02, **norms),
    "lars, corrected": lambda net, **norms: LARS(
        net.parameters(), 0.5, trust=0.02, weight_decay=0.1, corrected=True, **norms
    ),
    "lamb": lambda net, **norms: LAMB(groups(net, 0.1), 0.05, **norms),
    "adam": lambda net, **norms: torch.optim.Adam(net.parameters(), 0.05),
}


def trained(comm, optimizer, cuts, use_norms=True):
    """Eight steps of clipped gradients on one process and on all: errors of weights and norms."""
    whole = serial.made(serial.MLP, 4, 7, 3)
    mine = MLP(comm, whole.up, whole.down, cuts=cuts)
    whole.up.bias.requires_grad_(False)
    mine.up.bias.requires_grad_(False)
    of_whole = OPTIMIZERS[optimizer](whole)
    norms = {"norms": whole_norms(mine)} if use_norms else {}
    of_mine, errors = OPTIMIZERS[optimizer](mine, **norms), []
    for step in range(8):
        x, y = drawn(6, 4, seed=step), drawn(6, 3, seed=100 + step)
        for net in (whole, mine):
            net.zero_grad()
            (net(x) - y).square().sum().backward()
        expected = nn.utils.clip_grad_norm_(whole.parameters(), 9.0)
        errors.append(distance(clip_grad_norm(mine, 9.0), expected))
        errors.append(
            distance(
                grad_norm(mine),
                torch.linalg.vector_norm(
                    torch.cat([p.grad.flatten() for p in whole.parameters() if p.requires_grad])
                ),
            )
        )
        of_whole.step()
        of_mine.step()
        states = whole_state_dict(mine), whole.state_dict()
        errors += [distance(states[0][key], states[1][key]) for key in states[1]]
    return max(errors)


def all_trained(comm):
    """The largest error of each optimizer; every second one has uneven parts, and empty ones."""
    cuts = (0, 0, *[3] * (comm.size - 2), 7) if comm.size > 1 else None
    return [trained(comm, optimizer, cuts if number % 2 else None)
            for number, optimizer in enumerate(OPTIMIZERS)]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_training_with_norms_is_that_of_one_process(ranks):
    assert max(map(max, run(all_trained, ranks, on=switched(ranks)))) < 1e-12


def test_on_processes():
    assert max(map(max, run(all_trained, 3, timeout=20))) < 1e-12


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_norms_of_parts_alone_are_wrong(optimizer):
    assert min(run(trained, 2, optimizer, None, False, on=switched(2))) > 1e-4


def counted(comm):
    """Messages of a norm, and of a LARS step with two cut weights and one whole bias."""
    whole = serial.made(serial.MLP, 4, 6, 3)
    whole.up.bias = None
    mine = MLP(comm, whole.up, whole.down)
    mine(drawn(5, 4)).sum().backward()
    optimizer, counts = LARS(mine.parameters(), 0.1, norms=whole_norms(mine)), []
    for call in (functools.partial(grad_norm, mine), optimizer.step):
        before = comm.meter.sent_messages, comm.meter.sent_bytes
        call()
        counts.append((comm.meter.sent_messages - before[0], comm.meter.sent_bytes - before[1]))
    return counts


def test_a_norm_costs_an_all_reduce_of_a_number_and_a_step_one_of_two_a_cut_parameter():
    assert run(counted, 2, on=switched(2)) == [[(1, 8), (2, 2 * 16)]] * 2


def nothing(comm):
    whole = serial.made(serial.MLP, 4, 6, 3)
    return grad_norm(MLP(comm, whole.up, whole.down)).item(), grad_norm(whole).item()


def test_without_gradients_the_norm_is_0():
    assert run(nothing, 2, on=switched(2)) == [(0.0, 0.0)] * 2


def another(comm):
    whole = serial.made(serial.MLP, 4, 6, 3)
    mine = MLP(comm, whole.up, whole.down)
    optimizer = LARS(mine.parameters(), 0.1, norms=whole_norms(whole))
    mine(drawn(5, 4)).sum().backward()
    optimizer.step()


def test_norms_of_another_module_are_refused():
    with pytest.raises(RankError, match=r"parameters that the module had: not of one of shape \[3"):
        run(another, 2, on=switched(2))


def test_a_copy_of_an_optimizer_has_its_norms():
    p = nn.Parameter(torch.ones(3))
    optimizer = LARS([p], 0.1, norms=lambda p, *tensors: [torch.ones(())] * len(tensors))
    assert copy.deepcopy(optimizer).norms is optimizer.norms
    assert "norms" not in optimizer.state_dict()["param_groups"][0]
