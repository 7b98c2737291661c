"""Memory that ranks of a node share: what was written before a meeting is read after it."""

import pytest
import torch

from course.comm import CommError
from course.worlds import RankError, processes, run
from tests.worlds.simulator.clusters import switched


def tell_the_others(comm, turns):
    """Each writes who it is and the turn; all read all, so long as nobody writes again."""
    wrong = []
    with comm.node_memory() as memory:
        mine = memory.buffers[comm.rank]
        for turn in range(turns):
            mine[: 1 << 16] = (comm.rank + turn) % 251
            memory.barrier()
            for rank, place in memory.buffers.items():
                if not (place[: 1 << 16] == (rank + turn) % 251).all():
                    wrong.append((turn, rank))
            memory.barrier()
    return wrong, sorted(memory.buffers)


@pytest.mark.parametrize("nodes", [(0,), (0, 0, 0, 0), (0, 1, 0, 1)])
def test_what_is_written_before_a_meeting_is_read_after_it(nodes):
    told = run(tell_the_others, len(nodes), 50, on=processes(nodes=nodes))
    near = [[rank for rank, at in enumerate(nodes) if at == node] for node in nodes]
    assert told == [([], ranks) for ranks in near]


def in_groups(comm):
    """Meetings of different groups do not count for one another."""
    pairs, found = comm.split(comm.rank // 2), []
    for group in (pairs, comm, pairs, comm, comm, pairs):
        found += tell_the_others(group, 5)[0]
    return found


def test_groups_meet_apart_from_one_another():
    assert run(in_groups, 4) == [[]] * 4


def has_node_memory(comm):
    return comm.node_memory() is not None


def common_beside(comm):
    group = comm.split(comm.rank // 2)
    return (
        has_node_memory(comm),
        comm.submit(has_node_memory).wait(),
        group.submit(has_node_memory).wait(),
    )


def test_there_is_none_on_an_imagined_cluster_nor_beside_a_smaller_group():
    assert run(has_node_memory, 2, on=switched(2)) == [False] * 2
    assert run(common_beside, 4) == [(True, True, False)] * 4


def both_at_once(comm):
    beside = comm.submit(tell_the_others, 200)
    return tell_the_others(comm, 200)[0] + beside.wait()[0]


def test_what_runs_beside_has_memory_of_its_own():
    assert run(both_at_once, 3) == [[]] * 3


def one_fails_and_goes_on(comm):
    """Rank 1 leaves in the middle of a call; no later one may take its words for an answer."""
    heard = []
    for turn in range(2):
        try:
            with comm.node_memory() as memory:
                if comm.rank == 1 and turn == 0:
                    raise KeyError("something else")
                memory.barrier()
        except (CommError, KeyError) as error:
            heard.append(str(error))
    return heard


def test_who_has_left_a_call_takes_part_in_no_other():
    gone = ("rank 1 has left a collective before its end: nothing can go through the memory that "
            "it shares with its node any more")  # fmt: skip
    first, second = run(one_fails_and_goes_on, 2)
    assert first[0] == gone and second == ["'something else'", gone]


def wait_for_the_dead(comm):
    with comm.node_memory() as memory:
        if comm.rank == 1:
            return
        memory.barrier()


def wait_for_the_slow(comm):
    with comm.node_memory() as memory:
        if comm.rank == 1:
            comm.recv(torch.empty(1), 0)
        memory.barrier()


def test_a_barrier_that_cannot_be_is_told():
    with pytest.raises(RankError, match="rank 1 has returned from its function while rank 0 was in "
                                        "a barrier of node 0"):  # fmt: skip
        run(wait_for_the_dead, 2)
    with pytest.raises(RankError, match=r"rank \d waited 0.3 s in (a barrier of node 0|recv)"):
        run(wait_for_the_slow, 2, timeout=0.3, checked=False)
