"""Dropout of arrays: the mask is that of the whole array, for every number of ranks."""

import zlib

import torch
from torch.nn import functional

from course.comm.errors import differing
from course.comm.tensors import as_bytes, host
from course.parallel.array.distributed_array import implements


@implements(functional.dropout, torch.dropout)
def dropout(x, p=0.5, training=True, inplace=False):
    """`dropout`, by the numbers that one process would draw for the whole array.

    The ranks' generators are in one state before, and so they are afterwards.
    Cost: no message; a mask of the global shape for the while.  Raises ValueError in checked mode
    where the generators differ.
    """
    return _masked(x, functional.dropout, x.shape, p) if training and p else x


@implements(functional.dropout1d, functional.dropout2d, functional.dropout3d)
def dropout_of_maps(x, p=0.5, training=True, inplace=False):
    """`dropout2d` and its like: whole maps, alike on all ranks.  See `dropout`."""
    shape = *x.shape[:2], *[1] * (x.ndim - 2)
    return _masked(x, torch.feature_dropout, shape, p) if training and p else x


def _masked(x, draw, shape, p):
    factors = draw(torch.ones(shape, dtype=x.dtype, device=x.device), p, True)
    if x.comm.checked:
        check_same_mask(x.comm, factors)
    return x * factors


def check_same_mask(comm, factors):
    """Raises ValueError where ranks have drawn other `factors`.  Cost: one roll call; nothing is
    compared of what has no values."""
    if factors.is_meta:
        return
    told = comm.gather_texts(f"mask {zlib.crc32(as_bytes(host(factors))):08x}")
    if len(set(told)) > 1:
        ranks = differing(dict(enumerate(told))).replace(" in mask", " at mask")
        raise ValueError("dropout takes generators that are seeded alike on all ranks, by "
                         f"torch.manual_seed: {ranks}")  # fmt: skip
