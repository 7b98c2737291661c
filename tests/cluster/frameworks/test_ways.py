"""Every way learns what one process learns."""

import pytest
import torch

from course.cluster.frameworks import WAYS, train_in
from course.cluster.frameworks.ways import by_compiling
from course.worlds import processes

MANY = processes(oversubscribe=True)


def compiled(comm, net, deal):
    return by_compiling(comm, net, deal, backend="eager")


@pytest.mark.parametrize("ranks", [1, 4])
def test_every_way_learns_as_one_process_does(ranks):
    ways = WAYS | {"compile": compiled}
    found = train_in(ways, ranks, steps=3, dtype=torch.float64, on=MANY)
    assert list(found) == list(ways)
    one = found["one process"]
    assert one.losses[-1] < 0.9 * one.losses[0]
    for name, each in found.items():
        assert len(each.losses) == len(one.losses) == 6, name
        assert each.difference(one) < 1e-12, name


def test_rows_that_do_not_divide_by_the_ranks_are_a_mean_of_means_for_ddp():
    ways = {name: WAYS[name] for name in ("one process", "course", "DDP")}
    found = train_in(ways, 3, steps=3, dtype=torch.float64, on=MANY)
    wrong = {name: each.difference(found["one process"]) for name, each in found.items()}
    assert wrong["DDP"] > 1e-4
    assert wrong["course"] < 1e-12
