"""A rank's part of attention, its slopes, and what it has sent."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from course.classroom.sequence_runs import attention_of_part, off_by
from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.parallel.sequence import contiguous, zigzag
from course.parallel.sequence.ring_attention import cost
from course.worlds import run, simulated

CUTS = contiguous(12, 3), zigzag(12, 3)


def test_parts_are_those_of_the_whole_and_numbers_are_counted():
    chance = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 12, 4, generator=chance).double() for _ in range(3))
    keys = k.clone().requires_grad_()
    expected = scaled_dot_product_attention(q, keys, v, is_causal=True)
    (slopes,) = torch.autograd.grad(expected.square().sum(), [keys])
    for cut in CUTS:
        on = simulated(one_switch(3, FREE, FDR))
        found = run(attention_of_part, 3, q, k, v, cut, on=on)
        assert off_by(found, expected, slopes, cut) < 1e-12
        assert [sent for *_, sent in found] == cost(cut, 8)
        assert off_by(found, expected, 2 * slopes, cut) > 1e-3
        assert off_by(found, 2 * expected, slopes, cut) > 1e-3
