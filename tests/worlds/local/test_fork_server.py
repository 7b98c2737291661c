import os
import socket
import subprocess
import sys
import textwrap

import pytest

from course.worlds.framing import Inbox, receive
from course.worlds.local import fork_server


@pytest.fixture
def run():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_process_that_cannot_be_forked_is_told(monkeypatch, run):
    """It was `rank 0 was ended by SIGKILL`, and the next time a raw `BlockingIOError`."""

    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    ours, theirs = run
    assert fork_server.fork(None, theirs, "rank 3") == 0
    *refused, sentence = receive(ours)
    assert refused == [fork_server.LEADER, "refused"] and sentence == (
        "rank 3 could not be forked: no more processes are allowed here (ulimit -u, or a "
        "container's limit): [Errno 11] Resource temporarily unavailable"
    )


def test_a_forked_process_ends_whatever_it_raises(run):
    """One left by the interpreter's end, which waits for threads."""

    def live():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        raise SystemExit(0)

    pid = fork_server.fork(live, run[1], "a process")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no such descriptors")
def test_a_process_is_watched_until_it_ends():
    child = subprocess.Popen(["sleep", "1000"])
    (fd,) = fork_server.pidfd(child.pid)
    assert not fork_server.select.select([fd], [], [], 0)[0]
    child.kill()
    assert fork_server.select.select([fd], [], [], 60)[0]
    child.wait()
    os.close(fd)


LEADER = """
    import os, signal, socket, subprocess, sys
    from course.worlds.local import fork_server
    ours, theirs = socket.socketpair()
    fork_server.prctl(fork_server.ADOPT_ORPHANS, 1)
    if (pid := os.fork()) == 0:
        os.setpgid(0, 0)
        subprocess.Popen(["sleep", "1000"])
        subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True)
        BODY
    BODY_OF_LEADER
    print(fork_server.children())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize("ended", [False, True])
def test_all_descendants_end_sessions_of_their_own_or_not(ended):
    text = LEADER.replace("BODY_OF_LEADER", "WAIT\n    fork_server.end_descendants(ranks)")
    wait = "os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT); ranks = {pid: 0}"
    text = text.replace("WAIT", wait if ended else "ranks = {pid: 0}; theirs.recv(1)")
    text = text.replace("BODY", "os._exit(0)" if ended else "ours.send(b'.'); signal.pause()")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True)
    assert (done.stdout, done.stderr) == (b"[]\n", b"")


def test_a_rank_that_ended_is_reported_and_an_orphan_is_not(run):
    ours, theirs = run
    rank = subprocess.Popen(["sh", "-c", "exit 3"], process_group=0)
    orphan = subprocess.Popen(["true"])
    for child in (rank, orphan):
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ranks = {rank.pid: 5}
    fork_server.reap(ranks, theirs)
    assert receive(ours) == (5, "ended", 3 << 8) and not ranks
    assert Inbox(ours).read() == []
    rank.returncode = orphan.returncode = 0  # they were waited for


def test_a_group_that_is_gone_is_no_error():
    child = subprocess.Popen(["true"], process_group=0)
    child.wait()
    fork_server.end_group(child.pid)
