"""Dropout of arrays: the whole array's mask, whatever the number of ranks."""

import pytest
import torch
from torch.nn import functional

from course.parallel.array import part
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn


def masked(comm):
    """Three uses of each kind: the whole's mask, and generators in step afterwards."""
    found = []
    for kind in (functional.dropout, functional.dropout2d):
        for use in range(3):
            x = drawn(3, 4, 6, 5, seed=use)
            torch.manual_seed(use)
            expected, after = kind(x, 0.4), torch.rand(2)
            torch.manual_seed(use)
            y = kind(part(comm, x, (1, 1, comm.size, 1)), 0.4)
            found.append(torch.allclose(y.gather(), expected, rtol=1e-14, atol=0)
                         and torch.equal(torch.rand(2), after))  # fmt: skip
    same = part(comm, drawn(3, 4, 6, 5), (1, 1, comm.size, 1))
    found.append(functional.dropout(same, 0.4, training=False) is same)
    found.append(functional.dropout2d(same, 0.0) is same)
    return all(found)


def seeded_otherwise(comm):
    torch.manual_seed(comm.rank)
    functional.dropout2d(part(comm, drawn(3, 4, 6, 5), (1, 1, comm.size, 1)), 0.4)


def test_generators_that_differ_are_told_of():
    sentence = "dropout takes generators that are seeded alike on all ranks, by torch.manual_seed"
    with pytest.raises(RankError, match=sentence):
        run(seeded_otherwise, 2, timeout=5)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_mask_is_that_of_one_process(ranks):
    assert run(masked, ranks, timeout=20) == [True] * ranks
