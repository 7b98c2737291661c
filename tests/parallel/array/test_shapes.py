"""Sums, means and other shapes, of arrays and of the whole."""

import functools

import pytest
import torch

from course.parallel.array import DistributedArray, part
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn, off
from tests.worlds.simulator.clusters import switched

SUMS = {
    "all": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "cut axes": lambda x: x.sum((2, -1)),
    "kept": lambda x: x.mean((2, 3), keepdim=True),
    "uncut axis": lambda x: x.sum(1).square().sum(),
    "uncut, kept": lambda x: (x - torch.mean(x, 1, keepdim=True)).square().sum(),
    "dtype": lambda x: x.sum(dtype=torch.float32).double(),
    "no axes are all": lambda x: x.mean(()) + x.sum(dim=[]),
}
SHAPES = {
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "in a tuple": lambda x: torch.permute(x, (1, 0, 2, 3)),
    "transposed": lambda x: x.transpose(0, 1),
    "flat in front": lambda x: x.flatten(0, 1),
    "flat behind": lambda x: x.transpose(1, 3).transpose(1, 2).flatten(2),
    "unflat": lambda x: x.unflatten(1, (2, -1)),
    "unflat where cut": lambda x: x.unflatten(3, (-1, 2)),
}
GRIDS = {1: (1, 1, 1, 1), 2: (1, 1, 1, 2), 3: (1, 1, 3, 1), 4: (1, 1, 2, 2)}


def summed_up(comm, name, grid):
    whole = drawn(3, 4, 6, 8).requires_grad_()
    expected = SUMS[name](whole)
    factor = drawn(*expected.shape, seed=1)
    (slope,) = torch.autograd.grad((expected * factor).sum(), [whole])
    x = part(comm, whole.detach(), grid)
    x.local.requires_grad_()
    found = SUMS[name](x)
    (mine,) = torch.autograd.grad((found * factor).sum(), [x.local])
    back = DistributedArray(comm, mine, x.layout).gather()
    return off(found - expected), off(back - slope)


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("ranks", GRIDS)
def test_sums_and_means_are_those_of_the_whole_on_every_rank(name, ranks):
    near = 1e-4 if name == "dtype" else 1e-12
    for sums, _ in every_case(ranks):
        value, slope = sums[name]
        assert value < near and slope < 1e-12


def shaped(comm, name, grid):
    whole = drawn(3, 4, 6, 8)
    x = part(comm, whole, grid)
    if name == "flat behind" and grid[3] > 1:
        return True  # two cut axes would be one
    return torch.equal(SHAPES[name](x).gather(), SHAPES[name](whole))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("ranks", GRIDS)
def test_other_shapes_hold_the_same_numbers(name, ranks):
    assert all(shapes[name] for _, shapes in every_case(ranks))


def cases(comm):
    grid = GRIDS[comm.size]
    return ({name: summed_up(comm, name, grid) for name in SUMS},
            {name: shaped(comm, name, grid) for name in SHAPES})  # fmt: skip


@functools.cache
def every_case(ranks):
    """Of all ranks, in one run."""
    return run(cases, ranks, timeout=60)


def joined(comm, rows):
    torch.cat([part(comm, drawn(2, 4), (comm.size, 1)), drawn(rows, 4)], 1)


@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_joined_is_of_one_length_along_the_other_axes(rows):
    """One row was joined to every rank's, and of three rows the last was left out, in silence."""
    told = rf"rank 0: something of the shape \(2, 4\) is wanted here, not \({rows}, 4\)"
    with pytest.raises(RankError, match=told):
        run(joined, 2, rows, on=switched(2))
