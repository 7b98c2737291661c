"""An array of many ranks behaves like the whole: shape, parts, journeys, torch's functions."""

import pytest
import torch

from course.parallel.array import DistributedArray, cut_at, evenly, part, scatter
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn, off


def what_it_says(comm):
    x = part(comm, drawn(5, 6), (2, 1))
    sizes = tuple(x.shape), x.size(1), x.dim(), x.ndim, x.numel(), len(x), x.is_floating_point()
    return repr(x), sizes, x.dtype, str(x.device)


def test_it_says_its_global_shape_and_what_this_rank_has():
    (first, sizes, dtype, device), (second, *_) = run(what_it_says, 2, timeout=5)
    assert first == "<5 x 6 cut 2 x 1: rank 0 has [0:3, 0:6], float64 [3, 6]>"
    assert second == "<5 x 6 cut 2 x 1: rank 1 has [3:5, 0:6], float64 [2, 6]>"
    assert sizes == ((5, 6), 6, 2, 2, 30, 5, True)
    assert (dtype, device) == (torch.float64, "cpu")


def there_and_back(comm, root):
    """A whole of one rank, scattered, cut otherwise, and gathered: value and slope, five times."""
    errors = []
    for use in range(5):
        whole = drawn(7, 5, seed=use).requires_grad_()
        mine = whole if comm.rank == root else None
        x = scatter(comm, mine, layout=evenly((7, 5), (comm.size, 1)), root=root)
        x = x.redistribute(cut_at((7, 5), {1: [0, *[3] * (comm.size - 1), 5]}))
        y = x.gather()
        weight = drawn(7, 5, seed=9)
        (y * weight).sum().backward()
        if comm.rank == root:
            errors.append(off(whole.grad - weight))
        errors.append(off(y - whole))
    return errors


@pytest.mark.parametrize("ranks, root", [(1, 0), (2, 1), (3, 0), (4, 2)])
def test_scattered_cut_otherwise_and_gathered_it_is_the_same(ranks, root):
    assert all(error == 0 for errors in run(there_and_back, ranks, root, timeout=20)
               for error in errors)  # fmt: skip


def nothing_moves(comm):
    x = part(comm, drawn(4, 4), (comm.size, 1))
    same = x.redistribute(evenly((4, 4), (comm.size, 1)))
    return same is x, comm.meter.sent_messages


def test_what_is_cut_so_already_is_not_sent():
    assert run(nothing_moves, 2, timeout=5) == [(True, 0)] * 2


def unknown(comm, how):
    x = part(comm, drawn(4, 4), (comm.size, 1))
    {
        "function": lambda: torch.linalg.qr(x),
        "method": lambda: x.cumsum(0),
        "private": lambda: x._version,
        "shapes": lambda: x + part(comm, drawn(4, 3), (comm.size, 1)),
        "matrices": lambda: part(comm, drawn(4, 4), (1, comm.size)) @ drawn(4, 4),
        "other matrices": lambda: drawn(4, 4) @ x,
        "sum": lambda: part(comm, drawn(4, 4), (2, 2)).sum(0),
        "order": lambda: part(comm, drawn(4, 4), (2, 2)).mT,
        "flatten": lambda: part(comm, drawn(4, 4), (1, comm.size)).flatten(),
        "unflatten": lambda: part(comm, drawn(6, 1), layout=cut_at((6, 1), {0: (0, 1, 3, 5, 6)})
                                  ).unflatten(0, (3, 2)),
    }[how]()  # fmt: skip


@pytest.mark.parametrize("how, sentence", [
    ("function", r"NotImplementedError: linalg_qr is not known of distributed arrays: gather\(\)"),
    ("method", r"a distributed array has no cumsum: gather\(\) makes it whole"),
    ("private", "AttributeError: a distributed array has no _version"),
    ("shapes", r"arrays of shape \(4, 4\) and \(4, 3\) do not go together"),
    ("matrices", "rank 0: columns of matrices of 4 x 4 cut 1 x 4 are cut: redistribute"),
    ("other matrices", "rank 0: matrices of 4 x 4 cut 4 x 1 are cut: redistribute"),
    ("sum", r"rank 0: of 4 x 4 cut 2 x 2, a sum over the axes \(0,\) would leave parts of it"),
    ("order", r"rank 0: the cut axes \[0, 1\] of 4 x 4 cut 2 x 2 stay in their order: not \[1, 0"),
    ("flatten", "rank 0: of the axes 0 to 1 of 4 x 4 cut 1 x 4 only the first may be cut"),
    ("unflatten", "rank 0: axis 0 of 6 x 1 cut 4 x 1 is not cut at multiples of 2"),
])  # fmt: skip
def test_what_is_not_known_is_said_on_every_rank(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(unknown, 4, how, timeout=5)


def kept(comm):
    x = part(comm, drawn(4, 2), (comm.size, 1))
    return isinstance(x, DistributedArray) and isinstance(torch.relu(x), DistributedArray)


def test_functions_of_arrays_are_arrays():
    assert run(kept, 2, timeout=5) == [True, True]
