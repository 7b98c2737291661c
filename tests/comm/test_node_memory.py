"""The memory of a node as a group sees it: by the group's ranks, useless after an error."""

from types import SimpleNamespace

import pytest

from course.comm.node_memory import NodeMemory


class Window:
    """A window of ranks 1, 3 and 4 of the world that writes down what it is asked."""

    def __init__(self):
        self.buffers = {rank: f"buffer of {rank}" for rank in (1, 3, 4)}
        self.asked, self.poisoned = [], False

    def barrier(self, peers, operation):
        self.asked.append((peers, operation))

    def poison(self):
        self.poisoned = True


def group(rank, *members):
    """A group's rank on node 7, in the middle of a call."""
    return SimpleNamespace(members=members, rank=rank, node=7, call="all_reduce #3")


def test_buffers_have_the_groups_numbers():
    """Ranks of other nodes have none, whatever their place in the group."""
    assert NodeMemory(group(0, 4, 2, 1), Window()).buffers == {0: "buffer of 4", 2: "buffer of 1"}


def test_a_barrier_waits_for_the_ranks_of_this_node_that_are_in_the_group():
    window = Window()
    NodeMemory(group(2, 4, 2, 1), window).barrier()
    NodeMemory(group(1, 3, 4, 1), window).barrier()
    words = "a barrier of node 7 within all_reduce #3"
    assert window.asked == [([4], words), ([3, 1], words)]


def test_alone_on_its_node_a_rank_waits_for_nobody():
    window = Window()
    NodeMemory(group(0, 1, 2), window).barrier()
    assert [peers for peers, _ in window.asked] == [[]]


def test_an_error_within_makes_it_useless_and_is_not_swallowed():
    window = Window()
    with NodeMemory(group(0, 1, 3), window) as memory:
        assert memory.buffers.keys() == {0, 1}
    assert not window.poisoned
    with pytest.raises(KeyError, match="something else"), NodeMemory(group(0, 1, 3), window):
        raise KeyError("something else")
    assert window.poisoned
