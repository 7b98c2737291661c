"""Pieces of any size are added up at their owners, and passed on to everybody."""

import pytest
import torch

from course.collectives import cost
from course.parallel.sharded.pieces import add_up, pass_on
from course.worlds import run

SIZES = [3, 0, 5, 1]


def moved(comm, dtype):
    sizes = SIZES[: comm.size]
    flat = (torch.arange(sum(sizes)) * (comm.rank + 1)).to(dtype)
    pieces, sent = flat.split(sizes), []
    for move in (add_up, pass_on):
        before = comm.meter.sent_bytes, comm.meter.sent_messages
        move(comm, pieces)
        sent.append((comm.meter.sent_bytes - before[0], comm.meter.sent_messages - before[1]))
    return flat, sent


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_both_together_are_an_all_reduce_in_the_bytes_of_the_formula(ranks):
    part_bytes = [8 * size for size in SIZES[:ranks]]
    should = cost.reduce_scatter(part_bytes), cost.all_gather(part_bytes)
    for rank, (flat, sent) in enumerate(run(moved, ranks, torch.float64)):
        total = torch.arange(len(flat)) * (ranks * (ranks + 1) / 2)
        assert torch.equal(flat, total.double())
        assert sent == [(each.sent_bytes[rank], each.sent_messages[rank]) for each in should]
