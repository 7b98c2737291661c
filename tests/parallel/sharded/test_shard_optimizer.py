"""An optimizer of shards is torch's own, and clears and widens what it must."""

import pytest
import torch
from torch import nn

from course.parallel.sharded import Sharded
from course.worlds import run


def used(comm):
    net = Sharded(nn.Linear(3, 2).bfloat16(), comm, stage=2)
    optimizer, said = net.optimizer(torch.optim.SGD, lr=0.1), []
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    with net.no_sync():
        net(x).sum().backward()
    said.append(net.module.weight.grad is None)
    optimizer.zero_grad()
    said.append(net.module.weight.grad is None)
    net(x).sum().backward()
    before = {shard.grad.dtype for shard in net.shards.values()}
    optimizer.step()
    scheduler.step()
    after = {shard.grad.dtype for shard in net.shards.values()}
    optimizer.zero_grad()
    cleared = all(shard.grad is None for shard in net.shards.values())
    return said, before, after, cleared, optimizer.param_groups[0]["lr"], type(optimizer)


def test_gradients_are_cleared_and_widened():
    expected = ([False, True], {torch.bfloat16}, {torch.float32}, True, 0.01, torch.optim.SGD)
    for said, before, after, cleared, lr, kind in run(used, 2):
        assert (said, before, after, cleared, round(lr, 9), kind) == expected


def stepped(comm, stage):
    """Half-type weights after three steps of Adam: by a closure, by its name, and without one."""
    found = []
    for way in range(3):
        torch.manual_seed(0)
        net = Sharded(nn.Linear(3, 2).bfloat16(), comm, stage=stage)
        optimizer, x = net.optimizer(torch.optim.Adam, lr=0.1), torch.ones(2, 3).bfloat16()

        def closure(net=net, optimizer=optimizer, x=x):
            optimizer.zero_grad()
            loss = net(x).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            if way == 0:
                optimizer.step(closure)
            elif way == 1:
                optimizer.step(closure=closure)
            else:
                closure()
                optimizer.step()
        found.append(net.state_dict()["weight"])
    return [torch.equal(one, found[-1]) for one in found]


@pytest.mark.parametrize("stage", [1, 3])
def test_gradients_of_a_closure_are_widened(stage):
    assert run(stepped, 2, stage) == [[True] * 3] * 2


def scaled(comm, stage):
    """Scales of GradScalers, and weights, after steps of which the second has an infinite slope,
    of a number that one rank alone has."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    settings = {} if stage == 3 else {"bucket_mb": 1e-5}
    net = Sharded(module, comm, stage=stage, require_finite=False, **settings)
    optimizer = net.optimizer(torch.optim.SGD, lr=0.1)
    scaler, seen = torch.amp.GradScaler("cpu", init_scale=8.0), []
    slopes = iter([0.0, float("inf"), 0.0])
    module[1].bias.register_hook(lambda g: g + torch.tensor([0.0, next(slopes)]))
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(2, 3)).square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), net.state_dict()["1.bias"].tolist()))
    return seen


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_scalers_of_all_ranks_skip_the_same_steps(stage):
    """In stage 3 one rank halved its scale and kept its shards, and the others went on."""
    first, second = run(scaled, 2, stage)
    assert first == second
    (scale, before), (halved, kept), (still, after) = first
    assert [scale, halved, still] == [8.0, 4.0, 4.0] and kept == before != after
