"""Arithmetic that needs no core."""

import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR
from course.cluster.scaling.work import DEVICE, work
from course.worlds import run, simulated


def test_it_gives_back_what_it_gets_and_its_slope():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = work(x, 0.0)
    assert y is not x and torch.equal(y, x)
    y.square().sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())
    assert torch.autograd.gradcheck(lambda x: work(x, 0.0), x)


def there_and_back(comm, flops):
    x = torch.ones(5, device=comm.device, requires_grad=True)
    y = work(x, flops)
    forward = comm.clock()
    y.sum().backward()
    return forward, comm.clock()


def test_an_imagined_rank_is_charged_for_it():
    world = simulated(one_switch(1, DEVICE, FDR), device="meta")
    [(forward, both)] = run(there_and_back, 1, 3e9, on=world)
    assert forward == 3e9 / DEVICE.flops_per_s
    assert both == 3 * forward


def test_a_real_rank_sleeps_for_it():
    [(forward, both)] = run(there_and_back, 1, 2e10)
    assert both - forward >= 2 * 2e10 / DEVICE.flops_per_s
