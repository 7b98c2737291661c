"""What is heard of ranks on several nodes, and of nodes that are lost."""

import re
import signal
import socket
import time

import pytest
import torch

from course.comm import CommError, Trace
from course.worlds import RankError, RunTimeout, run, slurm
from course.worlds.framing import Inbox, send
from course.worlds.local.fork_server import LEADER
from course.worlds.slurm import node_workers
from tests.worlds.slurm.programs import (
    FIRST_TWO,
    PATIENCE_S,
    after,
    agents,
    begins,
    host_of,
    kept,
    summed,
    until,
)

pytestmark = pytest.mark.usefixtures("at_box")


def lopsided(comm):
    if comm.rank == 2:
        return {}["of rank 2"]
    return comm.recv(torch.empty(1), 2)


def test_the_first_cause_is_told_with_its_rank_and_node():
    with pytest.raises(RankError) as caught:
        run(lopsided, 4, on=FIRST_TWO)
    assert str(caught.value).startswith("rank 2 on n2 failed: KeyError: 'of rank 2'")
    assert re.search("rank 0 on n1(: PeerLost| was still running)", str(caught.value))
    assert caught.value.rank == 2 and isinstance(caught.value.exception, KeyError)


def waits(comm):
    comm.recv(torch.empty(1), 1 - comm.rank) if comm.rank < 2 else time.sleep(1000)


def test_ranks_of_two_nodes_that_wait_for_one_another_are_named():
    with pytest.raises(RunTimeout, match="rank 3 on n2 was still running, in waits"):
        run(waits, 4, on=FIRST_TWO, timeout=None, limit=3.0)


def test_events_of_all_nodes_are_in_one_time():
    trace = Trace()
    began = time.perf_counter()
    run(summed, 4, on=slurm(nodes=4), trace=trace)
    assert set(trace.clocks) == {"n1", "n2", "n3", "n4"}
    for ahead, day, error in trace.clocks.values():
        assert abs(ahead) <= error + 1e-3 and abs(day) <= error + 1e-2  # one machine, one clock
    assert all(began < event.start <= event.end for event in trace.events)
    error = 2 * max(error for *_, error in trace.clocks.values())
    assert all(message.start <= message.end + error for message in trace.messages)


def its_agent_is_killed(box):
    next(p for p in agents() if host_of(p) == "n2").kill()


def its_line_is_cut(box):
    """Of which srun knows nothing: the end of a run waited for that of srun."""
    kept().agents[1].socket.shutdown(socket.SHUT_RDWR)


def its_job_is_cancelled(box):
    box.ask("scancel", "--user=root")


LOST = "failed: PeerLost: node n. was lost, with all that ran there .Slurm says"
LOSSES = {
    its_agent_is_killed: f"rank 1 on n2 {LOST}: .*n2: task 1: Killed.*was memory short. ask for",
    its_line_is_cut: f"rank 1 on n2 {LOST} nothing: .* The next run asks for fresh nodes",
    its_job_is_cancelled: f"rank . on n. {LOST}: .*CANCELLED AT .*somebody has ended the job, as",
}


@pytest.mark.parametrize("loss", LOSSES)
def test_why_a_node_was_lost_is_told_and_the_next_run_has_fresh_ones(box, begun, loss):
    run(summed, 2, on=FIRST_TWO)
    with after(begun, lambda: loss(box)), pytest.raises(RankError, match=LOSSES[loss]):
        run(begins, 2, on=FIRST_TWO, timeout=None, limit=PATIENCE_S)
    assert run(summed, 2, on=FIRST_TWO)[1][3] == 1.0


class AllocationOfOne:
    """One node, whose agent speaks by a socket."""

    def __init__(self, ours):
        self.agents, self.node, self.socket = [self], "n1", ours
        self.inbox = Inbox(ours)

    def clocks(self):
        return 0.0, 0.0, 0.0

    def last_said(self):
        return "CANCELLED"


@pytest.fixture
def alone():
    """The workers of one node, and the end of its agent."""
    ours, far = socket.socketpair()
    with ours, far:
        workers = node_workers.NodeWorkers(AllocationOfOne(ours), [0, 0])
        with workers.selector:
            yield workers, far


REFUSED, KILLED = (LEADER, "refused", "its ranks were ended"), (0, "ended", signal.SIGTERM)


@pytest.mark.parametrize("sign", [REFUSED, KILLED], ids=["refused", "killed"])
def test_ranks_that_end_shortly_before_their_node_are_lost_with_it(alone, monkeypatch, sign):
    """Slurm ends the processes of a job one by one, and its agent may be the last of them."""
    workers, far = alone
    monkeypatch.setattr(node_workers, "LOSS_S", PATIENCE_S)
    listen = workers._poll

    def before_the_agent_ends(timeout):
        heard = listen(timeout)
        far.close()
        return heard

    monkeypatch.setattr(workers, "_poll", before_the_agent_ends)
    send(far, sign)
    lost = {rank: value[0] for rank, kind, value in workers.poll() if kind == "failure"}
    assert set(lost) == {0, 1}
    for failure in lost.values():
        assert "n1 was lost, with all that ran there (Slurm says: CANCELLED)" in failure.sentence
    assert workers.poll(0) == []


def test_a_node_that_stays_has_refused(alone, monkeypatch):
    workers, far = alone
    monkeypatch.setattr(node_workers, "LOSS_S", 0.01)
    send(far, REFUSED)
    assert workers.poll(PATIENCE_S) == []
    with pytest.raises(CommError, match="^node n1: its ranks were ended$"):
        workers.poll(0)


def test_a_rank_that_is_killed_on_a_node_that_stays_is_told(alone, monkeypatch):
    workers, far = alone
    monkeypatch.setattr(node_workers, "LOSS_S", 0.01)
    send(far, KILLED)
    assert workers.poll(PATIENCE_S) == [KILLED]
    far.close()
    assert [rank for rank, kind, _ in workers.poll(PATIENCE_S) if kind == "failure"] == [1]


@pytest.mark.parametrize("loss", LOSSES)
def test_nodes_that_are_lost_between_two_runs_are_asked_for_anew(box, loss):
    run(summed, 2, on=FIRST_TWO)
    before = kept()
    loss(box)
    assert until(lambda: before.agents[1].gone)
    assert run(summed, 2, on=FIRST_TWO)[1][3] == 1.0
    assert kept() is not before
