"""Which receive a message is for, and when it is there."""

import pytest
import torch

from course.comm import ANY, CommMismatch
from course.worlds import RankError, processes, run
from tests.comm import test_communicator as on_processes
from tests.worlds.simulator.clusters import slowly, switched

DRILLS = {  # of the communicator's own tests: name, ranks, arguments
    "send_unusual_views": (2, ()),
    "tags_backwards": (2, ([1, 10_000, 3],)),
    "to_oneself": (3, ()),
    "overtake_in_a_ring": (3, (20_000, 1)),
    "split_in_many_ways": (4, ()),
    "same_pair_same_tag_in_three_groups": (4, ()),
}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", DRILLS)
def test_what_holds_for_processes_holds_here(name, checked):
    ranks, args = DRILLS[name]
    fn = getattr(on_processes, name)
    here = run(fn, ranks, *args, on=switched(ranks), checked=checked)
    apart = processes(nodes=tuple(range(ranks)))
    assert here == run(fn, ranks, *args, on=apart, checked=checked)


def ten(nbytes=100):
    return torch.zeros(nbytes, dtype=torch.uint8)


def first_come(comm, starts):
    """Rank r sends at starts[r]; rank 0 takes them as they come."""
    if comm.rank > 0:
        torch.zeros(starts[comm.rank])  # so many bytes take so many seconds
        return comm.send(ten(), 0)
    return [(comm.recv(ten(), ANY), comm.clock()) for _ in range(1, comm.size)]


def byte_by_byte(op, flops, nbytes, device):
    return nbytes / 4 if op == "zeros" and nbytes != 100 else 0.0


def test_any_takes_what_comes_first_in_the_cluster_s_time():
    """A message takes two seconds; it does not matter in which order the ranks run here."""
    world = slowly(4, charge=byte_by_byte)
    came = run(first_come, 4, [0, 30, 20, 10], on=world, checked=False)[0]
    assert came == [(3, 12.0), (2, 22.0), (1, 32.0)]
    came = run(first_come, 4, [0, 10, 30, 20], on=world, checked=False)[0]
    assert came == [(1, 12.0), (3, 22.0), (2, 32.0)]


def test_any_takes_the_lowest_rank_of_those_that_come_together():
    came = run(first_come, 4, [0, 7, 7, 7], on=slowly(4, charge=byte_by_byte), checked=False)[0]
    assert came == [(1, 11.0), (2, 11.0), (3, 11.0)]  # 300 bytes over the link of rank 0


def ask_late(comm):
    """Rank 0 asks for anything at second 100, when both have long been there."""
    if comm.rank == 0:
        torch.zeros(99)
        return [comm.recv(ten(), ANY) for _ in range(2)], comm.clock()
    torch.zeros([0, 20, 10][comm.rank])
    return comm.send(ten(), 0)


def test_any_that_asks_late_takes_what_came_first():
    assert run(ask_late, 3, on=slowly(3, charge=byte_by_byte), checked=False)[0] == ([2, 1], 99.0)


def any_before_one(comm):
    """A receive that was posted behind one from anyone does not overtake it."""
    if comm.rank:
        torch.zeros(comm.rank)
        for value in (1, 2):
            comm.send(ten() + 10 * comm.rank + value, 0)
        return None
    outs = [ten() for _ in range(4)]
    handles = [comm.irecv(out, src) for out, src in zip(outs, (ANY, 1, ANY, 2))]
    return [handle.wait() for handle in handles], [out[0].item() for out in outs]


@pytest.mark.parametrize("checked", [True, False])
def test_receives_are_served_in_the_order_in_which_they_were_posted(checked):
    world = slowly(3, charge=byte_by_byte)
    sources, values = run(any_before_one, 3, on=world, checked=checked)[0]
    assert sources == [1, 1, 2, 2] and values == [11, 12, 21, 22]


def change_after_send(comm):
    if comm.rank == 0:
        x = torch.ones(3)
        handle = comm.isend(x, 1)
        handle.wait()
        x += 5
        comm.barrier()
        return None
    comm.barrier()
    out = torch.zeros(3)
    comm.recv(out, 0)
    return out.tolist()


def test_what_was_sent_may_change_once_it_has_left():
    assert run(change_after_send, 2, on=switched(2), checked=False)[1] == [1.0] * 3


MISFITS = {"longer": (4, torch.float32), "shorter": (2, torch.float32), "other": (3, torch.int32)}


def misfit(comm, size, dtype):
    with pytest.raises(CommMismatch) as caught:
        if comm.rank == 0:
            comm.send(torch.ones(3), 1, tag=4)
        else:
            comm.recv(torch.ones(size, dtype=dtype), 0, tag=4)
    x = torch.zeros(1)
    comm.exchange(torch.ones(1), 1 - comm.rank, x, 1 - comm.rank)  # both go on
    return str(caught.value), x.item()


@pytest.mark.parametrize("name", MISFITS)
def test_a_message_that_does_not_fit_is_told_in_the_words_of_processes(name):
    here = run(misfit, 2, *MISFITS[name], on=switched(2))
    assert here == run(misfit, 2, *MISFITS[name])


def half_meta(comm):
    x = torch.zeros(3, device="meta" if comm.rank else "cpu")
    comm.send(x, 1) if comm.rank == 0 else comm.recv(x, 0)


def test_a_message_has_memory_at_both_ends_or_at_none():
    sentence = "rank 1's tensor is on the meta device and has no memory, rank 0's of the same"
    with pytest.raises(RankError, match=sentence):
        run(half_meta, 2, on=switched(2))


def ask_after_it_came(comm):
    """Copies that the cluster makes behind the scenes are nobody's work."""
    x, out = torch.empty(100), torch.empty(100)
    if comm.rank == 0:
        comm.send(x, 0)
        comm.recv(out, 0)
        comm.send(x, 1)
    else:
        torch.zeros(99, dtype=torch.uint8)
        comm.recv(out, 0)
    return comm.clock()


def test_copying_a_message_takes_no_time():
    world = slowly(2, charge=lambda op, flops, nbytes, device: nbytes)
    assert run(ask_after_it_came, 2, on=world, checked=False) == [5.0, 99.0]


def overlapping(comm):
    """Two messages to different ranks at once share the sender's link."""
    if comm.rank == 0:
        for handle in [comm.isend(ten(), dst) for dst in (1, 2)]:
            handle.wait()
    else:
        comm.recv(ten(), 0)
    return comm.clock()


def test_messages_at_the_same_time_share_the_link():
    assert run(overlapping, 3, on=slowly(3)) == [3.0] * 3
