"""Dropout of arrays: the mask is that of the whole array, for every number of ranks."""

import torch
from torch.nn import functional

from course.parallel.array.distributed_array import implements


@implements(functional.dropout, torch.dropout)
def dropout(x, p=0.5, training=True, inplace=False):
    """`dropout`, by the numbers that one process would draw for the whole array.

    The ranks' generators are in one state before, and so they are afterwards.
    Cost: no message; a mask of the global shape for the while.
    """
    if not training or p == 0:
        return x
    return x * functional.dropout(torch.ones(x.shape, dtype=x.dtype, device=x.device), p)


@implements(functional.dropout1d, functional.dropout2d, functional.dropout3d)
def dropout_of_maps(x, p=0.5, training=True, inplace=False):
    """`dropout2d` and its like: whole maps, alike on all ranks.  See `dropout`."""
    if not training or p == 0:
        return x
    ones = torch.ones((*x.shape[:2], 1, 1), dtype=x.dtype, device=x.device)
    return x * functional.dropout2d(ones, p).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
