"""A process that has imported torch once, and from then on forks ranks in no time.

It is a program of its own (`python fork_server.py FD`), so a rank inherits nothing of the notebook:
no threads, no open files, no `__main__`.

    notebook kernel ── fork server       one for the kernel's life
                          └── leader     one for each run: forks its ranks, reports their ends
                                └── rank, rank, rank, ...

Every level lives only as long as the socket from above stays open.  A run ends when its launcher
closes the run's socket, or dies: the kernel closes it then, whatever killed it.
"""

import contextlib
import ctypes
import os
import pathlib
import pickle
import select
import signal
import socket
import struct
import sys

STATUS = struct.Struct("<ii")  # rank, wait status
RANK = struct.Struct("<i")
LENGTH = struct.Struct("<Q")
QUIET_S = 0.3  # without a request is a quiet moment
MOST_FDS = 253  # that one message of a Unix socket carries


def serve(control):
    """Fork a leader for every run socket that comes down `control`, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaders need no burial
    while True:
        preload_when_idle(control)
        request, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            return supervise_ranks(socket.socket(fileno=fds[0]))
        os.close(fds[0])


def preload_when_idle(control):
    """While nobody asks for ranks and none run: import what a rank's first optimiser would."""
    while "torch._dynamo" not in sys.modules and not select.select([control], [], [], QUIET_S)[0]:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            continue  # a leader still lives
        import torch._dynamo  # noqa: F401  (1.3 s of processor time, in every rank that trains)


def supervise_ranks(run):
    """Fork the ranks of one run as they are asked for; end with them when `run` closes."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    ranks, open_ = {}, True
    while open_:
        ready, _, _ = select.select([run, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap(ranks, run)
        if run in ready:
            open_ = fork_rank(run, ranks, (woken, wake))
    for pid in ranks:
        end_group(pid)
        os.waitpid(pid, 0)


def fork_rank(run, ranks, private) -> bool:
    """Fork one more rank if its files have come; False once there is nobody to ask for one."""
    request, fds, _, _ = socket.recv_fds(run, RANK.size, MOST_FDS)
    if not request:
        return False
    leader, pid = os.getpid(), os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for fd in (run.detach(), *private):
            os.close(fd)
        become_rank(*RANK.unpack(request), fds, leader)
    ranks[pid] = RANK.unpack(request)[0]
    for fd in fds:
        os.close(fd)
    return True


def reap(ranks, run):
    """Report the ranks that have ended, and end what they started."""
    for pid in list(ranks):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            end_group(pid)
            with contextlib.suppress(OSError):
                run.sendall(STATUS.pack(ranks.pop(pid), status))


def end_group(pid):
    """End a rank's process group: itself and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def become_rank(rank, fds, leader):
    """In the child: take on the launcher's directory, path and environment, and live as a rank."""
    os.setpgid(0, 0)
    die_with_parent(leader)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control, out, err, *peers = fds
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    control = socket.socket(fileno=control)
    surroundings, job = receive(control), receive(control)
    os.environ.clear()
    os.environ.update(surroundings["environment"])
    sys.path[:] = surroundings["path"]
    with contextlib.suppress(OSError):
        os.chdir(surroundings["directory"])
    from course.worlds.local.rank import run_rank

    run_rank(rank, control, peers, job)


def die_with_parent(parent):
    """Ask Linux to end this process with its parent, even one that was ended by SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def receive(control):
    """The next object on a socket, or None at its end."""
    head = read_exactly(control, LENGTH.size)
    body = head and read_exactly(control, *LENGTH.unpack(head))
    return pickle.loads(body) if body else None


def read_exactly(control, count):
    data = bytearray()
    while len(data) < count:
        piece = control.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))
    import course.worlds.local.rank  # noqa: F401  (with torch, which no rank imports anew)

    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
