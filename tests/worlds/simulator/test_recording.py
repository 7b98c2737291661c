"""What ranks did, recorded once: on another cluster it takes as long as the program itself."""

import pytest
import torch

from course.cluster.fabric import coates_2013, one_switch
from course.cluster.hardware import ETHERNET_1G, FDR, FREE, GTX_680
from course.collectives import all_gather, all_reduce
from course.comm.communicator import ANY
from course.worlds import RankError, run, simulated
from course.worlds.simulator.recording import Compute, Post, Send, Wait

NARROW = one_switch(8, GTX_680, ETHERNET_1G)


def neighbours(comm, steps):
    """Products, while borders travel around a ring, and sums over all ranks."""
    x = torch.ones(100, 200 + 10 * comm.rank, device=comm.device)
    for step in range(steps):
        border, right = torch.empty(1000 * (step + 1), device=comm.device), comm.rank + 1
        sent = comm.isend(border + 1, right % comm.size, tag=step)
        came = comm.irecv(torch.empty_like(border), (comm.rank - 1) % comm.size, tag=step)
        y = x @ x.mT
        came.wait()
        sent.wait()
        all_reduce(comm, y)
        all_gather(comm, [torch.empty(4, device=comm.device) for _ in range(comm.size)], y[0, :4])


def recorded(program, ranks, *args, on=NARROW, **options):
    world = simulated(on, record=True, **options)
    run(program, ranks, *args, on=world, checked=False)
    return world


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_replay_takes_as_long_as_the_program(ranks, device):
    recording = recorded(neighbours, ranks, 3, device=device).recording
    for cluster in (NARROW, coates_2013(2), one_switch(8, FREE, FDR)):
        itself = simulated(cluster, device=device)
        run(neighbours, ranks, 3, on=itself, checked=False)
        again = simulated(cluster)
        report = again.replay(recording)
        assert report is again.report
        assert report.seconds == itself.report.seconds
        assert report.ranks == itself.report.ranks
        assert report.links == itself.report.links
        assert report.critical_path() == itself.report.critical_path()


def test_slow_ranks_and_other_charges_are_those_of_the_replay():
    recording = recorded(neighbours, 4, 2).recording
    options = {"slow": {2: 3.0}, "charge": lambda name, flops, nbytes, device: flops * 1e-9}
    itself = simulated(NARROW, **options)
    run(neighbours, 4, 2, on=itself, checked=False)
    assert simulated(NARROW, **options).replay(recording).seconds == itself.report.seconds


def test_what_is_recorded_adds_up():
    world = recorded(neighbours, 4, 2)
    assert world.recording.ranks == 4
    assert world.recording.flops() == sum(rank.flops for rank in world.report.ranks)
    assert world.recording.sent_bytes() == [rank.sent_bytes for rank in world.report.ranks]


def test_messages_of_other_lengths():
    recording = recorded(neighbours, 4, 2).recording
    half = recording.with_bytes(0.5)
    assert half.sent_bytes() == [sent / 2 for sent in recording.sent_bytes()]
    took = [simulated(NARROW).replay(each).seconds for each in (half, recording)]
    assert took[0] < took[1]


def test_without_overlap_nothing_is_computed_while_a_receive_is_open():
    recording = recorded(neighbours, 2, 2).recording
    assert any(open_while_computing(events) for events in recording.events)
    apart = recording.without_overlap()
    assert not any(open_while_computing(events) for events in apart.events)
    cluster = one_switch(2, GTX_680, ETHERNET_1G)
    slower, faster = (simulated(cluster).replay(each).seconds for each in (apart, recording))
    assert slower > faster


def open_while_computing(events) -> bool:
    posted = set()
    for event in events:
        if isinstance(event, Compute) and posted:
            return True
        if isinstance(event, Post):
            posted.add(event.request)
        if isinstance(event, Wait):
            posted.discard(event.request)
    return False


def test_a_message_that_nobody_waits_for_leaves_all_the_same():
    def let_go(comm):
        if comm.rank == 0:
            comm.isend(torch.zeros(1000), 1)
        else:
            comm.recv(torch.empty(1000), 0)

    world = recorded(let_go, 2)
    assert [type(event) for event in world.recording.events[0][-2:]] == [Send, Wait]
    again = simulated(NARROW).replay(world.recording)
    assert again.seconds == world.report.seconds


def receive_from_any(comm):
    if comm.rank == 0:
        comm.recv(torch.empty(1), ANY)
    else:
        comm.send(torch.ones(1), 0)


def beside(comm):
    comm.submit(all_reduce, torch.ones(3)).wait()


def tell(comm):
    comm.gather_texts("here")


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (tell, "rank 0: what ranks tell one another may decide what they do"),
        (receive_from_any, "rank 0: a receive from any rank takes what comes first"),
        (beside, "rank 0: calls in the background are not recorded"),
    ],
)
def test_what_cannot_be_recorded_is_refused(program, sentence):
    with pytest.raises(RankError, match=sentence):
        recorded(program, 2)


def test_checked_runs_are_refused():
    with pytest.raises(RankError, match="recorded with checked=False"):
        run(neighbours, 2, 1, on=simulated(NARROW, record=True))


def test_a_replay_needs_a_device_for_each_rank():
    recording = recorded(neighbours, 4, 1).recording
    with pytest.raises(ValueError, match="4 ranks, but the placement has 2 devices"):
        simulated(one_switch(2, GTX_680, FDR)).replay(recording)


def test_only_who_asks_is_recorded():
    world = simulated(NARROW)
    run(neighbours, 2, 1, on=world, checked=False)
    assert world.recording is None
