"""Functions of each number, signs and products: of parts what they are of the whole."""

import functools

import pytest
import torch
from torch.nn import functional

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import DistributedArray, cut_at, evenly, part
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn, off

W = drawn(1, 4, 1, seed=5)
EXPRESSIONS = {
    "signs": lambda x, y, w: (2 * x - y / 3 + (1 - x) * -y) / (1 + y * y),
    "powers": lambda x, y, w: (x**2 + 1).sqrt() + x.square().rsqrt() + 1 / (y.square() + 1),
    "functions": lambda x, y, w: torch.tanh(x) + functional.gelu(y) + torch.exp(-x.abs()),
    "choice": lambda x, y, w: torch.where(x > y, x, y.clamp(min=0.1)) + torch.maximum(x, -y),
    "comparisons": lambda x, y, w: x * (x >= 0) + y * (y < 0) + (x <= y).double(),
    "replicated": lambda x, y, w: x * w + w - y * 2.5,
    "broadcast": lambda x, y, w: x - x.mean(1, keepdim=True) + y.sum(1, keepdim=True) * x,
    "scalar": lambda x, y, w: x * w.sum() + torch.tensor(3.0, dtype=torch.float64) * y,
    "dtype": lambda x, y, w: (x.float() * 2).double() + w.to(x) * torch.ones_like(y),
}
SHAPE = 3, 4, 5
GRIDS = {1: [(1, 1, 1)], 2: [(1, 1, 2), (2, 1, 1)], 3: [(1, 1, 3)], 4: [(2, 1, 2), (4, 1, 1)]}


def compared(comm, name, grid):
    """The largest errors of the value, and of the slopes in x, y and w; y is cut otherwise."""
    of, errors = EXPRESSIONS[name], []
    for use in range(2):
        x, y = (drawn(*SHAPE, seed=s + use).requires_grad_() for s in (1, 2))
        w = W.clone().requires_grad_()
        factor = drawn(*SHAPE, seed=3)
        expected = (of(x, y, w) * factor).sum()
        mine = part(comm, x.detach(), grid)
        cuts = {1: (0, *[1] * (comm.size - 1), 4)} if grid[2] == comm.size else None
        layout = cut_at(SHAPE, cuts) if cuts else evenly(SHAPE, grid)
        other = part(comm, y.detach(), layout=layout)
        again = W.clone().requires_grad_()
        for each in (mine.local, other.local):
            each.requires_grad_()
        total = (of(mine, other, again) * factor).sum()
        errors.append(total - expected)
        for array, tensor in ((mine, x), (other, y)):
            inputs = array.local, tensor
            slopes = (torch.autograd.grad(each, [given], retain_graph=True, allow_unused=True)[0]
                      for each, given in zip((total, expected), inputs))  # fmt: skip
            slope, whole = (torch.zeros_like(given) if each is None else each
                            for each, given in zip(slopes, inputs))  # fmt: skip
            errors.append(DistributedArray(comm, slope, array.layout).gather() - whole)
        slopes = [torch.autograd.grad(each, [given], allow_unused=True)[0]
                  for each, given in ((total, again), (expected, w))]  # fmt: skip
        errors.append(torch.zeros(1) if slopes[1] is None else slopes[0] - slopes[1])
    return max(off(error) for error in errors)


def every_expression(comm):
    grids = GRIDS[comm.size]
    return {name: max(compared(comm, name, grid) for grid in grids) for name in EXPRESSIONS}


@functools.cache
def errors(ranks):
    """Of all expressions, in one run."""
    return run(every_expression, ranks, timeout=60)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("ranks", GRIDS)
def test_values_and_slopes_are_those_of_the_whole(name, ranks):
    assert max(each[name] for each in errors(ranks)) < 1e-12


def products(comm):
    """[windows, n, k] @ [windows, k, m] and @ [k, m], windows cut: value and slopes."""
    a, b, c = (drawn(*s, seed=n) for n, s in enumerate([(5, 2, 3), (5, 3, 2), (2, 4)]))
    whole = [x.clone().requires_grad_() for x in (a, b, c)]
    (whole[0] @ whole[1] @ whole[2]).square().sum().backward()
    x, y = (part(comm, z, (comm.size, 1, 1)) for z in (a, b))
    x.local.requires_grad_(), y.local.requires_grad_()
    w = c.clone().requires_grad_()
    total = (x @ y @ w).square().sum()
    total.backward()
    errors = [w.grad - whole[2].grad, total - (a @ b @ c).square().sum()]
    for array, tensor in ((x, whole[0]), (y, whole[1])):
        errors.append(DistributedArray(comm, array.local.grad, array.layout).gather() - tensor.grad)
    return max(off(error) for error in errors)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_products_of_whole_matrices(ranks):
    assert max(run(products, ranks, timeout=20)) < 1e-12


PROGRAMS = {  # of x [6, 1], y [1, 6] and v [6], cut along axes 0, 1 and 0, and of tensors beside
    "longer tensors": lambda x, y, v: x * drawn(5, seed=1),
    "more axes": lambda x, y, v: v * drawn(3, 1, 6, seed=1) + x,
    "another first": lambda x, y, v: v + (x + y) * 2 + v,
    "rows": lambda x, y, v: functional.linear(x, drawn(2, 1, seed=1), drawn(2, seed=2)),
    "many matrices": lambda x, y, v: x @ drawn(3, 1, 2, seed=1),
    "by name": lambda x, y, v: torch.matmul(input=x, other=y) + torch.sub(input=x, other=v),
    "equal": lambda x, y, v: (x == x) * x + (v != v) * v,
}
MADE = (6, 1), (1, 6), (6,)


def of_programs(comm):
    """{name: the largest error} of values and of the slope in x."""
    errors = {}
    grids = (comm.size, 1), (1, comm.size), (comm.size,)
    for name, program in PROGRAMS.items():
        whole = [drawn(*shape, seed=at) for at, shape in enumerate(MADE)]
        cut = [part(comm, x, grid) for x, grid in zip(whole, grids, strict=True)]
        if name == "by name":  # of which matrices are whole
            cut[1] = whole[1]
        for x in (whole[0], cut[0].local):
            x.requires_grad_()
        found, expected = program(*cut), program(*whole)
        for result in (found, expected):
            result.square().sum().backward()
        errors[name] = off(found.gather() - expected)
        slope = DistributedArray(comm, cut[0].local.grad, cut[0].layout).gather()
        errors[name] += off(slope - whole[0].grad)
    return errors


def test_shapes_of_all_kinds_go_together():
    for errors in run(of_programs, 3, on=simulated(one_switch(3, FREE, NDR))):
        assert max(errors.values()) < 1e-12, errors


def wrongly(comm, how):
    x = part(comm, drawn(6, 2), (comm.size, 1))
    {
        "communicators": lambda: x + part(comm.split(0, -comm.rank), drawn(6, 2), (comm.size, 1)),
        "truth": lambda: x if x > 0 else 0,
        "shapes": lambda: x + drawn(3),
        "vector": lambda: x @ drawn(2),
        "axis": lambda: x.sum(2),
        "mean": lambda: (x > 0).mean(),
        "part": lambda: part(comm, drawn(9, 9), layout=x.layout),
        "grid": lambda: part(comm, drawn(9, 9)),
    }[how]()


@pytest.mark.parametrize("how, sentence", [
    ("communicators", r"arrays of two communicators, world and world/\d:0, do not go together"),
    ("truth", "an array of many numbers is neither true nor false"),
    ("shapes", r"arrays of shape \(6, 2\) and \(3,\) do not go together"),
    ("vector", r"products are of matrices, not of shapes \(6, 2\) and \(2,\)"),
    ("axis", "6 x 2 cut 2 x 1 has no axis 2"),
    ("mean", "a mean is a floating number, not torch.bool"),
    ("part", r"a tensor of shape \(9, 9\) cannot be cut as one of \(6, 2\)"),
    ("grid", "an array is cut by a grid, or as a layout says: one of them"),
])  # fmt: skip
def test_what_is_refused(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrongly, 2, how, on=simulated(one_switch(2, FREE, NDR)))
