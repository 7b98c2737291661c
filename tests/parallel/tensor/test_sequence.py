"""The sequence-parallel pair: what it moves, that each is the other's adjoint, and its cost."""

import random

import pytest
import torch
from torch import nn

from course.collectives import cost
from course.parallel.tensor.cut import lengths
from course.parallel.tensor.sequence import gathered, on_rows, scattered
from course.worlds import RankError, run
from tests.parallel.tensor.serial import distance, drawn, some_cuts


def total(comm, x):
    """The sum over ranks of a number."""
    return sum(map(float, comm.gather_texts(repr(float(x.detach())))))


def both_ways(comm, count):
    """Errors of the values, and of <F x, y> = <x, F* y> over all ranks, F* by autograd; and of the
    second derivative, which is F again."""
    draw, errors = random.Random(comm.size), []
    for number in range(count):
        shape = [draw.randint(0, 4) for _ in range(draw.randint(1, 3))]
        axis = draw.randrange(-len(shape), len(shape))
        cuts = some_cuts(draw, shape[axis], comm.size)
        wholes = [drawn(*shape, seed=10 * number + rank) for rank in range(comm.size)]
        parts = [whole.split(lengths(cuts), axis)[rank] for rank, whole in enumerate(wholes)]
        for move, given, expected in (
            (gathered, parts, torch.cat(parts, axis)),
            (scattered, wholes, sum(wholes).split(lengths(cuts), axis)[comm.rank]),
        ):
            x = given[comm.rank].mT.contiguous().mT if len(shape) > 1 else given[comm.rank].clone()
            x.requires_grad_()
            moved = move(comm, x, cuts, axis)
            y = drawn(*moved.shape, seed=1000 + comm.rank).requires_grad_()
            (back,) = torch.autograd.grad((moved * y).sum(), x, create_graph=True)
            errors += [
                distance(moved, expected),
                abs(total(comm, (moved * y).sum()) - total(comm, (x * back).sum())),
            ]
            z = drawn(*x.shape, seed=2000 + comm.rank)
            (again,) = torch.autograd.grad((back * z).sum(), y)
            errors.append(distance(again, move(comm, z, cuts, axis)))
    return max(errors)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_each_is_the_adjoint_of_the_other_for_any_cuts_and_axis(ranks):
    assert max(run(both_ways, ranks, 8, timeout=60)) < 1e-12


def metered(comm, cuts):
    x, sent = drawn(2, lengths(cuts)[comm.rank], 3).requires_grad_(), []
    for _ in range(5):
        before = comm.meter.sent_bytes, comm.meter.sent_messages
        whole = gathered(comm, x, cuts)
        between = comm.meter.sent_bytes, comm.meter.sent_messages
        whole.sum().backward()
        after = comm.meter.sent_bytes, comm.meter.sent_messages
        sent.append([tuple(b - a for a, b in zip(*pair))
                     for pair in ((before, between), (between, after))])  # fmt: skip
    return sent


def test_bytes_and_messages_are_those_of_all_gather_and_reduce_scatter():
    cuts = 0, 3, 3, 8
    parts = [2 * 3 * 8 * length for length in lengths(cuts)]
    there, back = cost.all_gather(parts), cost.reduce_scatter(parts)
    for rank, sent in enumerate(run(metered, 3, cuts, timeout=10)):
        expected = [(each.sent_bytes[rank], each.sent_messages[rank]) for each in (there, back)]
        assert sent == [expected] * 5


def norm_on_rows(comm):
    cuts = (0, 0, *[2] * (comm.size - 2), 5) if comm.size > 1 else (0, 5)
    whole, mine = (nn.LayerNorm(4).double() for _ in range(2))
    whole.bias.requires_grad_(False)
    mine.bias.requires_grad_(False)
    x, y = drawn(5, 4), drawn(5, 4, seed=1)
    rows = slice(*cuts[comm.rank : comm.rank + 2])
    (whole(x) * y).sum().backward()
    found = on_rows(comm, mine, x[rows])
    (found * y[rows]).sum().backward()
    return distance(found, whole(x)[rows]), distance(mine.weight.grad, whole.weight.grad)


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_all_have_alike_gets_the_slopes_of_all_rows(ranks):
    assert max(max(pair) for pair in run(norm_on_rows, ranks, timeout=10)) < 1e-12


def wrong(comm, move, shape, cuts, axis):
    move(comm, torch.ones(shape), cuts, axis)


@pytest.mark.parametrize("call, sentence", [
    ((gathered, (3, 2), (0, 2, 4), -2),
     r"rank 0: of rows cut at \(0, 2, 4\) it has 2, along axis -2: not \[3, 2\]"),
    ((scattered, (3, 2), (0, 2, 4), 0), r"rank 0: .* it has 4, along axis 0: not \[3, 2\]"),
    ((gathered, (2,), (0, 2, 4), -2), r"rank 0: .* along axis -2: not \[2\]"),
    ((gathered, (2, 2), (0, 2), 0), "rank 0: .* make 1 parts, and there are 2 ranks"),
])  # fmt: skip
def test_rows_that_are_not_those_of_the_cuts_are_refused(call, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, *call, timeout=10)
