"""Convolutions beside torch's own: outputs and the gradients of images and filters, to 1e-10."""

import torch
from torch.nn.functional import conv2d


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def as_torch_does(method, images_shape, filters_shape, only_ours=(), **how):
    """Assert it of `method(images, filters, **how)`; torch is not told what is `only_ours`."""
    inputs = drawn(*images_shape).requires_grad_()
    filters = drawn(*filters_shape, seed=1).requires_grad_()
    ours, theirs = method(inputs, filters, **dict(only_ours), **how), conv2d(inputs, filters, **how)
    same(ours, theirs)
    back = drawn(*theirs.shape, seed=2)
    for mine, its in zip(
        torch.autograd.grad(ours, (inputs, filters), back),
        torch.autograd.grad(theirs, (inputs, filters), back),
        strict=True,
    ):
        same(mine, its)
