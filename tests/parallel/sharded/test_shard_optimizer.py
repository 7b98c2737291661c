"""An optimizer of shards is torch's own, and clears and widens what it must."""

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
