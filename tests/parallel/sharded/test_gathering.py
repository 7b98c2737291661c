"""Weights are whole when they are needed, the next ones on their way, and gone afterwards."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.cluster.fabric import one_switch
from course.cluster.hardware import Cable, Device
from course.parallel.sharded import Sharded
from course.parallel.sharded.account import step_cost
from course.worlds import run, simulated

LAYERS = 6


def net_of(width=4, **where):
    layers = [nn.Linear(width, width, bias=False, **where) for _ in range(LAYERS)]
    return nn.Sequential(*layers)


def states(net):
    """Which units are whole, and which of them are still on their way."""
    units = net.gathering.units
    return (
        [u.name for u in units if u.whole and not u.coming],
        [u.name for u in units if u.coming],
    )


def seen_in_a_step(comm):
    """What is whole, and what comes, while each layer computes: forward, then backward."""
    net, told = Sharded(net_of(), comm), []
    for step in range(2):
        told.clear()
        x = torch.ones(2, 4, requires_grad=True)
        for layer in net.module:
            layer.register_forward_pre_hook(lambda *_: told.append(states(net)))
        hooks = [layer.weight.register_hook(lambda g: told.append(states(net)))
                 for layer in net.module]  # fmt: skip
        net(x).sum().backward()
        if not step:
            for layer in net.module:
                layer._forward_pre_hooks.popitem()
            for hook in hooks:
                hook.remove()
    return told, states(net), [(phase, unit.name) for phase, unit in net.gathering.order]


def test_the_next_unit_is_on_its_way_while_one_computes():
    """The second step, by the order of the first; the last layer is kept for its backward."""
    names = [str(n) for n in range(LAYERS)]
    forward = [([name], [after]) for name, after in zip(names, names[1:])] + [([names[-1]], [])]
    back = [([name], [before]) for name, before in zip(names[:0:-1], names[-2::-1])] + [(["0"], [])]
    order = [("forward", name) for name in names] + [("backward", name) for name in names[::-1]]
    assert run(seen_in_a_step, 2) == [(forward + back, ([], []), order)] * 2


class Path(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def forward(self, x, way):
        for number in way:
            x = self.parts[number](x)
        return x


def seen_at_the_end_of_a_shorter_way(comm):
    net, told = Sharded(Path(), comm), []
    for way in (0, 1, 2), (0, 2):
        hook = net.module.parts[2].register_forward_pre_hook(lambda *_: told.append(states(net)))
        net(torch.ones(1, 2), way).sum().backward()
        hook.remove()
    return told[-1]


def test_a_unit_that_was_expected_and_is_passed_by_is_freed():
    assert run(seen_at_the_end_of_a_shorter_way, 2) == [(["parts.2"], [])] * 2


def step_s(comm, stage):
    """Seconds of the third step of equal layers without memory, each of 4 MB."""
    net = Sharded(net_of(1000, device=comm.device), comm, stage=stage)
    optimizer = net.optimizer(torch.optim.SGD, lr=0.1)
    for _ in range(3):
        start, before = comm.clock(), comm.meter.sent_bytes
        optimizer.zero_grad()
        net(torch.empty(256, 1000, device=comm.device)).sum().backward()
        optimizer.step()
        seconds = comm.clock() - start
    return seconds, comm.meter.sent_bytes - before, step_cost(net).sent_bytes[comm.rank]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_on_the_imagined_cluster_tensors_need_no_memory(stage):
    """The bytes are the formula's; on a fast network a step takes hardly longer than computing."""
    device = Device("a device", 1e12, 1e15, 1e9, "made up")

    def steps(ranks, bytes_per_s):
        fabric = one_switch(ranks, device, Cable("a cable", 1e-6, bytes_per_s, "made up"))
        world = simulated(fabric, device="meta")
        return run(step_s, ranks, stage, on=world, checked=False)

    alone, fast = steps(1, 1e9)[0][0], steps(4, 1e11)
    assert all(sent == should for _, sent, should in fast)
    if stage == 3:
        assert max(seconds for seconds, _, _ in fast) < 1.3 * alone


def after_trouble(comm):
    """Errors in a forward and a backward, a checkpoint, and evaluation leave nothing whole."""
    net, x, seen = Sharded(net_of(), comm), torch.ones(2, 4, requires_grad=True), []
    hook = net.module[2].register_forward_pre_hook(fails)
    with pytest.raises(ArithmeticError):
        net(x)
    hook.remove()
    seen.append(states(net))
    with torch.no_grad():
        net(x)
    seen.append(states(net))
    checkpoint(net, x, use_reentrant=False).sum().backward()
    seen.append(states(net))
    hook = net.module[2].weight.register_hook(fails)
    with net.no_sync(), pytest.raises(ArithmeticError):
        net(x).sum().backward()
    hook.remove()
    with net.no_sync():
        net(x).sum().backward()
    return [*seen, states(net)]


def fails(*_):
    raise ArithmeticError("in the middle")


def test_nothing_stays_whole_after_errors_checkpoints_and_evaluation():
    assert run(after_trouble, 2) == [[([], [])] * 4] * 2
