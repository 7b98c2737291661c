"""Outputs of a collective that share memory with its inputs, or with one another."""

import pytest
import torch

from course.collectives import all_gather, all_to_all, gather, reduce_scatter, scatter
from course.collectives.aliases import overwritten
from course.worlds import RankError, run


def test_which_parts_would_be_overwritten():
    x, y = torch.zeros(4, 6), torch.zeros(6)
    columns, rows = list(x.T), list(x)
    assert overwritten(0, rows, columns) == set(range(6))
    assert overwritten(0, rows[:1], [*rows, y]) == {0}
    assert overwritten(0, columns[:2], [columns[1][1:3], columns[2], x[2, 1:4], y]) == {0, 2}
    assert overwritten(0, [y[:0], y[:0], y[3:]], [y[:3], y[2:4], y[4:4]]) == {1}
    assert overwritten(0, [y[::2]], [y[1::2], y.view(torch.int32)[1:2], y[4:]]) == {1, 2}
    meta = torch.zeros(3, device="meta")
    assert overwritten(0, [meta, meta], [meta]) == set()


@pytest.mark.parametrize("outs", [lambda x: [x, x], lambda x: [x[:3], x[2:4]]])
def test_outs_that_share_memory_are_refused(outs):
    with pytest.raises(ValueError, match="rank 3: outs 1 and 2 share memory, so that one part"):
        overwritten(3, [torch.zeros(1), *outs(torch.zeros(4))])


def numbers(comm):
    """10 * rank + part, an element for each part."""
    return 10 * comm.rank + torch.arange(comm.size)


def all_to_all_in_place(comm):
    x = list(numbers(comm).split(1))
    all_to_all(comm, x, x)
    y = numbers(comm)
    all_to_all(comm, list(y.flip(0).split(1)), list(y.split(1)))
    z = numbers(comm)
    all_to_all(comm, list(z.split(1))[::-1], list(z.split(1)))
    return torch.cat(x).tolist(), y.tolist(), z.tolist()


def scatter_onto_another_part(comm):
    x = numbers(comm) + 1
    parts = list(x.split(1)) if comm.rank == 0 else None
    scatter(comm, x[-1:], parts)
    return x[-1].item()


def gather_from_another_place(comm):
    x = numbers(comm)
    outs = list(x.split(1))
    gather(comm, outs[-1], outs if comm.rank == 0 else None)
    return x.tolist() if comm.rank == 0 else None


def all_gather_from_another_place(comm):
    x = numbers(comm)
    outs = list(x.split(1))
    all_gather(comm, outs, outs[(comm.rank + 1) % comm.size])
    return x.tolist()


def all_gather_shifted(comm):
    """What a rank gives begins in the middle of where it belongs."""
    x = torch.zeros(3 * comm.size)
    x[3 * comm.rank + 1 : 3 * comm.rank + 4] = torch.arange(len(x[3 * comm.rank + 1 :]))[:3] + 1.0
    outs, given = list(x.split(3)), x[3 * comm.rank + 1 : 3 * comm.rank + 4]
    if comm.rank < comm.size - 1:
        all_gather(comm, outs, given)
    else:
        all_gather(comm, outs, torch.tensor([1.0, 2, 3]))
    return x.tolist()


def reduce_scatter_onto_another_part(comm):
    x = numbers(comm)
    parts = list(x.split(1))
    reduce_scatter(comm, parts[comm.rank - 1], parts)
    return parts[comm.rank - 1].item()


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_nothing_is_overwritten_before_it_is_sent(ranks):
    each = range(ranks)
    exchanged = [[10 * src + rank for src in each] for rank in each]
    for rank, (x, y, z) in enumerate(run(all_to_all_in_place, ranks)):
        assert x == exchanged[rank] and z == exchanged[rank][::-1]
        assert y == [10 * rank + part for part in each]  # flip copies: its outs are others
    assert run(scatter_onto_another_part, ranks) == [rank + 1 for rank in each]
    assert run(gather_from_another_place, ranks)[0] == [10 * rank + ranks - 1 for rank in each]
    given = [10 * rank + (rank + 1) % ranks for rank in each]
    assert run(all_gather_from_another_place, ranks) == [given] * ranks
    assert run(all_gather_shifted, ranks) == [[1.0, 2.0, 3.0] * ranks] * ranks
    sums = [sum(10 * other + rank for other in each) for rank in each]
    assert run(reduce_scatter_onto_another_part, ranks) == sums


def into_one_place(comm, collective):
    out = torch.zeros(2)
    if collective == "gather":
        gather(comm, torch.ones(2), [out] * comm.size if comm.rank == 0 else None)
    elif collective == "all_gather":
        all_gather(comm, [out] * comm.size, torch.ones(2))
    else:
        all_to_all(comm, [out] * comm.size, [torch.ones(2)] * comm.size)


@pytest.mark.parametrize("collective", ["gather", "all_gather", "all_to_all"])
@pytest.mark.parametrize("checked", [True, False])
def test_one_place_for_several_parts_is_refused(collective, checked):
    with pytest.raises(RankError, match=r"rank \d: outs 0 and 1 share memory, so that one part"):
        run(into_one_place, 2, collective, checked=checked)
