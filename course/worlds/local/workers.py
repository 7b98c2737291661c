"""The launcher's side of one run: its processes, and what is heard of them."""

import atexit
import contextlib
import os
import pathlib
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import threading

from course.worlds.local import fork_server
from course.worlds.sockets.shm_ring import reserve

# Without a name server, torch warns on stderr that it cannot look up names it does not need.
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}


class ForkServer:
    """The process that ranks are forked from; it ends when `control`, our socket to it, closes."""

    def __init__(self):
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", pathlib.Path(fork_server.__file__), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt of the notebook is not for the ranks
                env=QUIET | os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # threads: lost by a fork
            )
        atexit.register(self.close)

    def new_leader(self) -> socket.socket:
        """A socket to a fresh leader, whose ranks live until it is closed."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.control, [b"."], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def close(self):
        atexit.unregister(self.close)
        self.control.close()
        self.process.wait()


_lock, _fork_server = threading.Lock(), None


def new_leader() -> socket.socket:
    """A socket to a fresh leader, of the one fork server that this process keeps."""
    global _fork_server
    with _lock:
        try:
            return _fork_server.new_leader()
        except (AttributeError, OSError):  # there is none yet, or it has been ended
            if _fork_server:
                _fork_server.close()
            _fork_server = ForkServer()
            return _fork_server.new_leader()


class Workers:
    """The processes of one run.  `poll()` tells what they say, `stop()` ends them all."""

    def __init__(self):
        self.leader = new_leader()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.leader, selectors.EVENT_READ, (None, "ended"))
        self.buffers, self.controls, self.pids = {}, [], {}

    def start(self, jobs: list):
        """Start a rank for each of `jobs`."""
        ends, memory = {rank: {} for rank in range(len(jobs))}, reserve(len(jobs))
        for rank in range(len(jobs)):
            for other in range(rank + 1, len(jobs)):
                ends[rank][other], ends[other][rank] = self.pair(rank, other)
            peers = [end for _, end in sorted(ends.pop(rank).items())]
            self._start(rank, peers, [] if memory is None else [memory])
        if memory is not None:
            os.close(memory)
        self._send_jobs(jobs, [dict(os.environ)] * len(jobs))

    def pair(self, rank, other):
        """The two ends of a connection between two ranks."""
        return socket.socketpair()

    def _send_jobs(self, jobs, environments):
        """Tell the ranks what they are to do, and where."""
        path = [entry or os.getcwd() for entry in sys.path]
        for control, job, environment in zip(self.controls, jobs, environments):
            place = {"environment": environment, "path": path, "directory": os.getcwd()}
            with contextlib.suppress(OSError):  # a rank that is gone already will be heard of
                control.sendall(frame(place) + frame(job))

    def _start(self, rank, peers, more=()):
        """Ask the leader for a rank with its files; those of `more` stay open here, too."""
        control, far_control = socket.socketpair()
        pipes = [os.pipe() for _ in range(2)]
        far = [far_control.fileno(), *(write for _, write in pipes), *(p.fileno() for p in peers)]
        socket.send_fds(self.leader, [fork_server.RANK.pack(rank)], [*far, *more])
        for write in (write for _, write in pipes):
            os.close(write)
        for end in (far_control, *peers):
            end.close()
        self.controls.append(control)
        self.buffers[rank] = bytearray()
        self.selector.register(control, selectors.EVENT_READ, (rank, "control"))
        for (read, _), kind in zip(pipes, ("out", "err")):
            self.selector.register(read, selectors.EVENT_READ, (rank, kind))

    def poll(self, timeout=None) -> list:
        """What the ranks say, as (rank, kind, value), waiting up to `timeout` seconds for it.

        Kinds: started, stack, result, failure; out, err (bytes printed, none at their end);
        ended (a wait status).
        """
        heard = []
        for key, _ in self.selector.select(timeout):
            rank, kind = key.data
            data = read(key.fd)
            if not data:
                self._close(key.fileobj)
            if kind == "control":
                heard += self._said(rank, data)
            elif kind == "ended":
                ends = fork_server.STATUS.iter_unpack(data) if data else self._abandoned()
                heard += [(rank, kind, status) for rank, status in ends]
            else:
                heard.append((rank, kind, data))
        return heard

    def _abandoned(self):
        """The leader has ended, and with it, by the kernel's hand, its ranks."""
        return [(rank, int(signal.SIGKILL)) for rank in self.buffers]

    def _close(self, file):
        self.selector.unregister(file)
        os.close(file) if isinstance(file, int) else file.close()

    def _said(self, rank, data):
        buffer, size = self.buffers[rank], fork_server.LENGTH.size
        buffer += data
        while len(buffer) >= size:
            end = size + fork_server.LENGTH.unpack(buffer[:size])[0]
            if len(buffer) < end:
                return
            kind, value = pickle.loads(buffer[size:end])
            del buffer[:end]
            if kind == "started":
                self.pids[rank] = value
            yield rank, kind, value

    def request_stack(self, rank):
        """Ask a rank that is still running where it is; it answers with `stack` if it can."""
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(self.pids[rank], signal.SIGUSR1)

    def stop(self) -> list:
        """End every process of the run; return once none is left, with what they still said."""
        last_words = []
        try:
            if self.leader in self.open_files:
                self.leader.shutdown(socket.SHUT_WR)
            while self.leader in self.open_files:  # it closes when its last rank is buried
                last_words += self.poll()
            while more := self.poll(0):
                last_words += more
        finally:
            for file in self.open_files:
                self._close(file)
            self.selector.close()
        return last_words

    @property
    def open_files(self) -> list:
        return [key.fileobj for key in self.selector.get_map().values()]


def read(fd) -> bytes:
    """What is there to read; nothing at the end, however it came about."""
    try:
        return os.read(fd, 1 << 20)
    except ConnectionResetError:
        return b""


def frame(thing) -> bytes:
    """An object with its length in front, as `fork_server.receive` reads it."""
    body = pickle.dumps(thing)
    return fork_server.LENGTH.pack(len(body)) + body
