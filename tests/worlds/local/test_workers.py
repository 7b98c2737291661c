import os
import signal
import socket

import psutil
import pytest

from course.comm import CommError
from course.worlds import run
from course.worlds.framing import Inbox, send
from course.worlds.local import workers as module
from course.worlds.local.fork_server import LEADER
from course.worlds.local.workers import Workers, enough_files


@pytest.fixture
def workers():
    made = Workers()
    yield made
    if made.selector.get_map():
        made.stop()


def until_the_leader_speaks(workers):
    while LEADER not in workers.pids:
        workers.poll(60)


def test_a_leader_that_is_stopped_is_ended_all_the_same(workers, monkeypatch):
    """The launcher waited for it without any limit."""
    monkeypatch.setattr(module, "END_S", 0.2)
    until_the_leader_speaks(workers)
    leader = psutil.Process(workers.pids[LEADER])
    leader.suspend()
    assert workers.stop() == []
    assert not psutil.wait_procs([leader], 60)[1]


def test_a_fork_server_that_does_not_answer_is_replaced(monkeypatch):
    monkeypatch.setattr(module, "END_S", 0.2)
    run(lambda comm: 1, 1)
    server = module.fork_server()
    os.kill(server.process.pid, signal.SIGSTOP)
    Workers().stop()
    assert not server.alive
    assert run(lambda comm: comm.rank, 2) == [0, 1]


def test_what_the_leader_refuses_is_raised_at_the_next_poll(workers):
    until_the_leader_speaks(workers)
    ours, theirs = socket.socketpair()
    workers._listen(ours, LEADER, "control", Inbox(ours))
    with theirs:
        send(theirs, (2, "ended", 9))
        send(theirs, (LEADER, "refused", "no more"))
        assert workers.poll(60) == [(2, "ended", 9)]
    with pytest.raises(CommError, match="^no more$"):
        workers.poll(0)


def test_all_that_a_rank_said_before_it_ended_is_heard_by_then(workers):
    """Else a rank that told its failure would pass for one that ended without a word."""
    until_the_leader_speaks(workers)
    ours, theirs = socket.socketpair()
    workers._listen(ours, 0, "control", Inbox(ours))
    with theirs:
        said = [(0, "started", 17), (0, "stack", []), (0, "failure", "why")]
        for thing in said:
            send(theirs, thing)
        assert workers.poll(60) == said
    assert workers.pids[0] == 17
    assert workers.poll(60) == [] and ours not in workers.open_files


def test_a_failed_start_leaves_nothing_open(monkeypatch, workers):
    """Each left a memfd and pipes."""
    until_the_leader_speaks(workers)
    before = psutil.Process().num_fds()
    calls = []

    def fails_late(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(5, "on purpose")
        return send_fds(*args)

    send_fds = module.socket.send_fds
    with monkeypatch.context() as now:
        now.setattr(module.socket, "send_fds", fails_late)
        with pytest.raises(OSError, match="on purpose"):
            workers.start({}, 3)
    workers.stop()
    assert psutil.Process().num_fds() < before  # the leader's socket and the selector, too


def test_an_error_that_is_not_about_files_passes():
    with pytest.raises(OSError, match="another"), enough_files(2):
        raise OSError(5, "another")


def test_the_limit_of_open_files_is_what_it_was():
    before = module.resource.getrlimit(module.resource.RLIMIT_NOFILE)
    with enough_files(2):
        soft, hard = module.resource.getrlimit(module.resource.RLIMIT_NOFILE)
        assert soft == hard == before[1]
    assert module.resource.getrlimit(module.resource.RLIMIT_NOFILE) == before
