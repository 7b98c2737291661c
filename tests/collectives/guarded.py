"""Views into larger tensors, whose other elements nobody may touch."""

import math

import torch


def whole(shape):
    return shape, lambda parent: parent


def middle(shape):
    """One piece of a longer one."""
    count = math.prod(shape)
    return (count + 4,), lambda parent: parent[2 : count + 2].view(shape)


def column(shape):
    return (*shape, 3), lambda parent: parent[..., 1]


def transposed(shape):
    axes = tuple(reversed(range(len(shape))))
    return shape[::-1], lambda parent: parent.permute(axes)


def transposed_column(shape):
    axes = tuple(reversed(range(len(shape))))
    return (*shape[::-1], 3), lambda parent: parent[..., 1].permute(axes)


def conjugate(shape):
    """Complex numbers of which torch only notes that they are conjugated; others as they are."""
    return shape, torch.Tensor.conj


LAYOUTS = (whole, middle, column, transposed, transposed_column, conjugate)


class Guarded:
    """`view` [shape] looks into a tensor full of NaN (of 77 for integers, of True for bool)."""

    def __init__(self, shape, dtype, layout):
        size, self._look = layout(tuple(shape))
        blank = True if dtype == torch.bool else math.nan if is_inexact(dtype) else 77
        self._parent = torch.full(size, blank, dtype=dtype)
        self._before = self._parent.clone()
        self.view = self._look(self._parent)

    @property
    def intact(self) -> bool:
        """Whether every element beside the view has the bits that it had."""
        outside = torch.ones(self._parent.shape, dtype=torch.bool)
        self._look(outside).fill_(False)
        now, before = (x[outside].view(torch.uint8) for x in (self._parent, self._before))
        return torch.equal(now, before)


def is_inexact(dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
