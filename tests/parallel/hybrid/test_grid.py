"""Grids of ranks: who is where, who is with whom, and what cannot be."""

import pytest
import torch

from course.collectives import all_gather
from course.parallel.hybrid.grid import Grid
from course.worlds import RankError, processes, run
from tests.worlds.simulator.clusters import switched


def placed(comm, axes):
    grid = Grid(comm, **axes)
    along = {name: (grid[name].rank, grid[name].members) for name in axes}
    both = grid.over("tensor", "data")
    return grid.coordinates, along, both.members, repr(grid), both is grid.over("data", "tensor")


@pytest.mark.parametrize("world", ["processes", "imagined"])
def test_eight_ranks_by_hand(world):
    axes = {"data": 2, "pipeline": 2, "tensor": 2, "expert": 1}
    on = processes(oversubscribe=True) if world == "processes" else switched(8)
    where, along, both, told, same = run(placed, 8, axes, on=on)[5]
    assert where == {"data": 1, "pipeline": 0, "tensor": 1, "expert": 0}
    assert along == {
        "data": (1, (1, 5)), "pipeline": (0, (5, 7)), "tensor": (1, (4, 5)), "expert": (0, (5,)),
    }  # fmt: skip
    assert both == (0, 1, 4, 5) and same
    assert told == "<rank 5 of 8: data 1 of 2, pipeline 0 of 2, tensor 1 of 2, expert 0 of 1>"


def checked(comm, axes):
    """Every group is the plan's; its communicator carries messages of its own."""
    grid = Grid(comm, **axes)
    for name in axes:
        mine = grid[name]
        assert mine.members in grid.groups(name) and mine.rank == grid.coordinates[name]
        told = [torch.empty(1, dtype=torch.long) for _ in range(mine.size)]
        all_gather(mine, told, torch.tensor([comm.rank]))
        assert [int(x) for x in told] == list(mine.members)
        assert [grid.rank(**{name: at}) for at in range(mine.size)] == list(mine.members)
    assert grid.groups(*axes) == [tuple(range(comm.size))]
    assert grid.groups() == [(rank,) for rank in range(comm.size)]
    assert all(grid.rank(**grid.at(rank)) == rank for rank in range(comm.size))
    return True


@pytest.mark.parametrize("axes", [{"a": 1}, {"a": 3, "b": 1}, {"a": 2, "b": 2}, {"b": 1, "a": 2}])
def test_groups_are_a_partition_and_ranks_are_found_again(axes):
    ranks = torch.tensor(list(axes.values())).prod().item()
    assert all(run(checked, ranks, axes))


def refusals(comm):
    sentences, grid = [], Grid(comm, data=2)
    for wrong in (
        lambda: Grid(comm, data=2, tensor=2),
        lambda: Grid(comm),
        lambda: Grid(comm, data=0),
        lambda: Grid(comm, data=2, tensor=1.0),
        lambda: grid["tensor"],
        lambda: grid.over("data", "expert"),
        lambda: grid.rank(data=2),
        lambda: grid.rank(tensor=0),
        lambda: grid.rank(data=0.5),
        lambda: grid.at(2),
    ):
        with pytest.raises(ValueError) as caught:
            wrong()
        sentences.append(str(caught.value))
    return sentences


def test_what_is_no_grid_is_refused_with_the_rule():
    large, none, empty, half, axis, axes, coordinate, name, part, rank = run(refusals, 2)[1]
    rule = "rank 1: the axes of a grid multiply to its number of ranks: "
    assert large == rule + "data 2 x tensor 2 makes 4, and there are 2"
    assert none == rule + "nothing makes 1, and there are 2"
    assert empty == "rank 1: data is a whole number, 1 or more, not 0"
    assert half == "rank 1: tensor is a whole number, 1 or more, not 1.0"
    assert axis == "rank 1: the axes of this grid are data, not 'tensor'"
    assert axes.endswith("are data, not 'expert'") and name == axis
    assert coordinate == "rank 1: coordinates along data go from 0 to 1, not 2"
    assert part.endswith("from 0 to 1, not 0.5")
    assert rank == "rank 1: the ranks of this grid are 0 to 1, not 2"


def disagreeing(comm, first, others, over):
    grid = Grid(comm, **(first if comm.rank == 0 else others))
    for names in over[comm.rank % len(over)]:
        grid.over(*names)


@pytest.mark.parametrize("first, others, over", [
    ({"data": 2, "tensor": 2}, {"tensor": 2, "data": 2}, [[]]),
    ({"data": 4}, {"data": 2, "tensor": 2}, [[]]),
    ({"a": 2, "b": 2, "c": 1}, {"a": 2, "b": 2, "c": 1}, [[("a", "c"), ("a", "b")],
                                                         [("a", "b"), ("a", "c")]]),
])  # fmt: skip
def test_ranks_that_name_other_axes_are_told(first, others, over):
    """The groups of two orders can have as many ranks as they should, and other names."""
    said = "all ranks of a grid name its axes alike, and .*: [12] came to that of <rank [0-3] of 4"
    with pytest.raises(RankError, match=said):
        run(disagreeing, 4, first, others, over, on=switched(4))
