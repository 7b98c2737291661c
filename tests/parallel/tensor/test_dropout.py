"""The mask is that of one process, on any number of ranks, cut or not; and it is compared."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from course.parallel.tensor.dropout import Dropout
from course.worlds import RankError, run
from tests.parallel.tensor.serial import drawn


def masks(comm, seed):
    """Whether five uses are those of nn.Dropout: of what is whole, of rows, of other axes."""
    mine, theirs, same = Dropout(comm, 0.4), nn.Dropout(0.4), []
    for use in range(5):
        for cut, axis in ((False, -2), (True, -2), (True, 0), (True, -1)):
            x = drawn(4, 5, 6, seed=use)
            length = x.shape[axis]
            cuts = (0, *[2] * (comm.size - 1), length)
            here = range(*cuts[comm.rank : comm.rank + 2]) if cut else range(length)
            where = torch.tensor([*here], dtype=torch.long)
            torch.manual_seed(seed + use)
            expected = theirs(x).index_select(axis, where)
            torch.manual_seed(seed + use)
            found = mine(x.index_select(axis, where), cuts if cut else None, axis)
            same.append(torch.equal(found, expected))
            same.append(bool(torch.rand(()) == after(seed + use, x, theirs)))
    mine.eval()
    same.append(copy.deepcopy(mine).comm is comm)
    return all(same) and mine(x) is x and Dropout(comm, 0.0)(x) is x


def after(seed, x, dropout):
    """What one process draws next."""
    torch.manual_seed(seed)
    dropout(x)
    return torch.rand(())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("checked", [True, False])
def test_the_mask_is_that_of_one_process_and_so_is_what_is_drawn_next(ranks, checked):
    assert run(masks, ranks, 3, timeout=20, checked=checked) == [True] * ranks


def slopes(comm):
    """A checkpoint draws again what it has drawn."""
    torch.manual_seed(1)
    x, dropout = torch.ones(6, 4).requires_grad_(), Dropout(comm, 0.5)
    y = checkpoint(lambda x: dropout(x).square(), x, use_reentrant=False)
    y.sum().backward()
    return torch.equal(x.grad, 2 * y.detach() * (y > 0)), float(y.detach().sum())


def test_a_checkpoint_leaves_out_the_same_again():
    (equal, first), *others = run(slopes, 3, timeout=20)
    assert equal
    assert others == [(True, first)] * 2


def seeded_apart(comm, later):
    torch.manual_seed(0)
    dropout, x = Dropout(comm, 0.5), torch.ones(50)
    if later:
        dropout(x)
    torch.manual_seed(comm.rank // 2)
    dropout(x)


@pytest.mark.parametrize("later, checked", [(False, True), (False, False), (True, True)])
def test_generators_that_differ_are_found(later, checked):
    sentence = r"dropout takes generators that are seeded alike on all ranks, by torch.manual_seed"
    with pytest.raises(RankError, match=rf"{sentence}: rank 2 is at mask \w+; ranks 0, 1 are at"):
        run(seeded_apart, 3, later, timeout=10, checked=checked)


def test_a_probability_is_one():
    with pytest.raises(RankError, match="rank 0: a probability lies from 0 to 1, not 1.5"):
        run(Dropout, 2, 1.5, timeout=10)


def other_rows(comm):
    Dropout(comm, 0.5)(torch.ones(1, 3), (0, 2, 4))


def test_rows_that_are_not_those_of_the_cuts_are_refused():
    with pytest.raises(
        RankError, match=r"rank 0: of rows cut at \(0, 2, 4\) it has 2, .* \[1, 3\]"
    ):
        run(other_rows, 2, timeout=10)
