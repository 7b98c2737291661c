"""The slow, obvious side of every comparison: what ranks put in, and what must come out."""

import functools
import math

import torch

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
MEANINGFUL = {
    **dict.fromkeys(FLOATS, ("sum", "mean", "prod", "min", "max")),
    **dict.fromkeys((torch.int64, torch.uint8), ("sum", "prod", "min", "max")),
    torch.bool: ("min", "max"),
    **dict.fromkeys((torch.complex64, torch.complex128), ("sum", "mean", "prod")),
}


def values(shape, dtype, rank, part=0, turn=0):
    """Small whole numbers [shape], others for every rank, part and turn.  Their sums and products
    are exact in every dtype, so that nothing depends on the order of adding.  Of a large tensor
    only the first are drawn, which then repeat at a distance that fits no buffer."""
    generator = torch.Generator().manual_seed(1_000_003 * turn + 1009 * part + rank)
    least = 0 if dtype in (torch.bool, torch.uint8) else -2
    most = 1 if dtype == torch.bool else 2
    count = math.prod(shape)
    drawn = torch.randint(least, most + 1, (2, min(count, 10_007)), generator=generator)
    first = torch.complex(*drawn.double()) if dtype.is_complex else drawn[0]
    return first.to(dtype).repeat(count // 10_007 + 1)[:count].reshape(shape)


def reduced(tensors, op):
    """The elementwise sum (mean, ...) of a list of tensors [of one shape]."""
    if callable(op):
        return functools.reduce(op, tensors)
    stack, dtype = torch.stack(tensors), tensors[0].dtype
    if op == "mean":
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return stack.to(wide).mean(dim=0).to(dtype)
    if op in ("sum", "prod"):
        return getattr(stack, op)(dim=0, dtype=dtype)
    return {"min": stack.amin, "max": stack.amax}[op](dim=0)


def same(got, expected, op="sum") -> bool:
    """Equal to the last bit, but for means that are not rounded once at the end."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    rounded_twice = op == "mean" and (got.dtype == torch.float16 or got.dtype.is_complex)
    if not rounded_twice:
        return torch.equal(got, expected)
    slack = 4 * torch.finfo(got.dtype).eps
    return torch.allclose(got, expected, rtol=slack, atol=slack)
