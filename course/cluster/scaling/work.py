"""Arithmetic that needs no core: of a device that is not there, for curves of a cluster on a
machine that has fewer cores than ranks.

Real ranks sleep for as long as DEVICE would take; on the imagined cluster the same operation is
charged to the rank's device, on the meta device.
"""

import time

import torch
from torch.utils.flop_counter import register_flop_formula

from course.cluster.hardware import Device

DEVICE = Device("a rank that rests", 1e12, float("inf"), float("inf"), "assumed")


def work(x, flops: float):
    """`x` [any shape] again, after `flops` of DEVICE; twice as many on the way back."""
    return _work(x, flops)


@torch.library.custom_op("course::work", mutates_args=())
def _work(x: torch.Tensor, flops: float) -> torch.Tensor:
    time.sleep(flops / DEVICE.flops_per_s)
    return x.clone()


@_work.register_fake
def _(x, flops):
    return torch.empty_like(x)


@register_flop_formula(torch.ops.course.work)
def _flops(shape, flops, out_shape=None) -> float:
    return flops


def _remember(ctx, inputs, output):
    ctx.flops = inputs[1]


def _twice(ctx, slope):
    return _work(slope, 2 * ctx.flops), None


_work.register_autograd(_twice, setup_context=_remember)
