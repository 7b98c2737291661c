"""A process that has imported torch once, and from then on forks ranks in no time.

It is a program of its own (`python fork_server.py FD PATH`), so a rank inherits nothing of the
notebook: no threads, no open files, no `__main__`.

    notebook kernel ── fork server       one for the kernel's life
                          └── leader     one for each run: forks its ranks, reports their ends
                                └── rank, rank, rank, ...

Every level lives only as long as the socket from above stays open and the notebook lives.  A run
ends when its launcher closes the run's socket, or dies, whatever has killed it.  Then all that its
ranks have started ends, too: who loses its parent becomes a child of the leader.
"""

import contextlib
import ctypes
import gc
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import sys
import traceback

LEADER = -1  # who reports, if not a rank
RANK = struct.Struct("<ii")  # its number, and that of its peers
QUIET_S = 0.3  # without a request is a quiet moment
MOST_FDS = 253  # that one message of a Unix socket carries
MOST_FILES = 65536
NOBODY = 0, 0  # has ended, says waitpid
DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # of prctl(2)
NO_PROCESS = "no more processes are allowed here (ulimit -u, or a container's limit): "


def serve(control):
    """Fork a leader for every run socket that comes down `control`, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for leaders
    launcher = pidfd(os.getppid())
    while True:
        preload_when_idle(control, *launcher)
        gc.freeze()  # what is here stays shared with the ranks
        if control not in select.select([control, *launcher], [], [])[0]:
            return
        request, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not request:
            return
        with socket.socket(fileno=fds[0]) as run:
            fork(lambda: supervise_ranks(run, control, launcher), run, "the ranks")  # noqa: B023


def pidfd(pid) -> list:
    """[a file descriptor that can be read once a process has ended], if the system has such."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


def preload_when_idle(*wakers):
    """While nobody asks for ranks and none run: import what a rank's first optimiser would."""
    while "torch._dynamo" not in sys.modules and not select.select(wakers, [], [], QUIET_S)[0]:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            continue  # a leader still lives
        import torch._dynamo  # noqa: F401  (1.3 s of processor time, in every rank that trains)


def fork(live, run, who) -> int:
    """Fork a process that does nothing but `live()`; its number, or 0 if there can be none, of
    which the launcher hears by `run`."""
    try:
        pid = os.fork()
    except OSError as error:
        report(run, LEADER, "refused", f"{who} could not be forked: {NO_PROCESS}{error}")
        return 0
    if pid == 0:
        try:
            live()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def report(run, rank, kind, value):
    """Tell the launcher, if it is there."""
    from course.worlds.framing import send

    with contextlib.suppress(OSError):
        send(run, (rank, kind, value))


def supervise_ranks(run, control, launcher):
    """Fork the ranks of one run as they are asked for; end with them when `run` closes."""
    control.close()
    prctl(ADOPT_ORPHANS, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    report(run, LEADER, "started", os.getpid())
    ranks, open_ = {}, True
    while open_:
        ready, _, _ = select.select([run, woken, *launcher], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap(ranks, run)
        if run in ready:
            open_ = fork_rank(run, ranks, (woken, wake, *launcher))
        open_ = open_ and not set(launcher).intersection(ready)
    end_descendants(ranks)


def fork_rank(run, ranks, private) -> bool:
    """Fork one more rank if its files have come; False once there is nobody to ask for one."""
    request, fds, _, _ = socket.recv_fds(run, RANK.size, MOST_FDS)
    if not request:
        return False
    (rank, peers), leader = RANK.unpack(request), os.getpid()

    def live():
        signal.set_wakeup_fd(-1)
        for fd in (run.detach(), *private):
            os.close(fd)
        become_rank(rank, peers, fds, leader)

    if pid := fork(live, run, f"rank {rank}"):
        ranks[pid] = rank
    for fd in fds:
        os.close(fd)
    return True


def reap(ranks, run):
    """Report the ranks that have ended, and end what they started."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != NOBODY:
            pid, status = ended
            if pid in ranks:  # else an orphan
                end_group(pid)
                report(run, ranks.pop(pid), "ended", status)


def end_group(pid):
    """End a rank's process group: itself and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_descendants(ranks):
    """End the ranks, and then all that they have left, sessions of their own or not."""
    for pid in ranks:
        end_group(pid)
        os.waitpid(pid, 0)
    while orphans := children():
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(-1, 0)


def children() -> list:
    """The processes whose parent this one is, where Linux tells."""
    try:
        listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in listed.split()]


def become_rank(rank, peers, fds, leader):
    """In the child: take on the launcher's directory, path and environment, and live as a rank."""
    from course.worlds.framing import receive
    from course.worlds.local.rank import run_rank

    os.setpgid(0, 0)
    die_with_parent(leader)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control, out, err, *more = fds
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    control = socket.socket(fileno=control)
    to_peers = [socket.recv_fds(control, 1, 1)[1][0] for _ in range(peers)]
    job = receive(control)
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[:] = job["path"]
    with contextlib.suppress(OSError):
        os.chdir(job["directory"])
    run_rank(rank, control, to_peers + more, job)


def die_with_parent(parent):
    """Ask Linux to end this process with its parent, even one that was ended by SIGKILL."""
    prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def prctl(what, value):
    """Ask Linux to treat this process so; nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, value)


def main(control):
    """Serve, or say why not."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, MOST_FILES), most))
    try:
        import course.worlds.local.rank  # noqa: F401  (with torch, which no rank imports anew)
    except BaseException:
        control.sendall(traceback.format_exc().encode())
    else:
        serve(control)
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))  # the launcher's own `course`
    sys.path += sys.argv.pop().split(os.pathsep)
    main(socket.socket(fileno=int(sys.argv[1])))
