"""The launcher's side of one run: its processes, and what is heard of them."""

import contextlib
import errno
import itertools
import os
import resource
import selectors
import signal
import socket
import sys
import time

from course.comm.errors import CommError
from course.worlds.framing import Inbox, send
from course.worlds.helper import HelperProgram, Kept, search_path
from course.worlds.local import fork_server as program
from course.worlds.local.crowd import wait_for_room
from course.worlds.local.fork_server import LEADER
from course.worlds.sockets.shm_ring import reserved

# Without a name server, torch warns on stderr that it cannot look up names it does not need.
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
# OpenBLAS's threads would be lost by a fork; what ranks print is read as UTF-8.
OWN = {"OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
NOT_OURS = ("PYTHONHOME", "PYTHONPATH")  # may hide the standard library, which is loaded here
END_S = 10.0  # for a leader to end its ranks
READ_BYTES = 1 << 20  # of what is printed, at once
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS)


class ForkServer(HelperProgram):
    """The process that ranks are forked from."""

    def __init__(self):
        kept = {key: value for key, value in os.environ.items() if key not in NOT_OURS}
        super().__init__(program.__file__, search_path(), environment=QUIET | kept | OWN)

    def new_leader(self) -> socket.socket:
        """A socket to a fresh leader, whose ranks live until it is closed."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [b"."], [theirs.fileno()])
        return ours


fork_server = Kept(ForkServer)


class Workers:
    """The processes of one run.  `poll()` tells what they say, `stop()` ends them all."""

    connected = True  # each to each
    called = staticmethod("rank {}".format)  # how a rank is named to the user

    def __init__(self):
        self.server = fork_server()
        self.leader, self.refusal = self.server.new_leader(), None
        self.selector = selectors.DefaultSelector()
        self.controls, self.pids = {}, {}
        self._listen(self.leader, LEADER, "control", Inbox(self.leader))

    def start(self, job: dict, ranks: int):
        """Start `ranks` ranks to do `job`, once there is room on a machine that many share.  Raises
        CommError where there cannot be so many."""
        wait_for_room()
        self.launch(job | surroundings(), range(ranks), ranks)

    def launch(self, job: dict, mine, ranks: int):
        """Start those numbered `mine` of `ranks` ranks to do `job`, where it says."""
        with enough_files(len(mine)), reserved(ranks) as memory:
            for rank in mine:
                self._start(rank, ranks - 1 if self.connected else 0, memory)
            if self.connected:
                self._connect(mine)
        for control in self.controls.values():
            with contextlib.suppress(OSError):  # a rank that is gone already will be heard of
                send(control, job)

    def pair(self, rank, other):
        """The two ends of a connection between two ranks."""
        return socket.socketpair()

    def _connect(self, ranks):
        for pair in itertools.combinations(ranks, 2):
            for rank, end in zip(pair, self.pair(*pair)):
                self._hand_over(rank, end)

    def _hand_over(self, rank, end):
        """Give a rank its end of the connection to the next of its peers."""
        with end, contextlib.suppress(OSError):
            socket.send_fds(self.controls[rank], [b"."], [end.fileno()])

    def _start(self, rank, peers: int, files: list):
        """Ask the leader for a rank that is to hear of so many peers, and has these open files."""
        control, far = socket.socketpair()
        self.controls[rank] = control
        self._listen(control, rank, "control", Inbox(control))
        with far, contextlib.ExitStack() as theirs:
            fds = [far.fileno()]
            for kind in ("out", "err"):
                read_end, write_end = os.pipe()
                theirs.callback(os.close, write_end)
                self._listen(read_end, rank, kind)
                fds.append(write_end)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `poll` says why
                socket.send_fds(self.leader, [program.RANK.pack(rank, peers)], fds + files)

    def _listen(self, file, rank, kind, inbox=None):
        self.selector.register(file, selectors.EVENT_READ, (rank, kind, inbox))

    def poll(self, timeout=None) -> list:
        """What the ranks say, as (rank, kind, value), waiting up to `timeout` seconds for it.

        Kinds: started, stack, result, failure; out, err (bytes printed, none at their end);
        ended (a wait status).  Raises CommError if there can be no more ranks.
        """
        if self.refusal:
            raise CommError(self.refusal)
        return self._poll(timeout)

    def _poll(self, timeout) -> list:
        said = []
        for key, _ in self.selector.select(timeout):
            *source, inbox = key.data
            news = sum(iter(inbox.read, []), []) if inbox else [(*source, read(key.fd))]
            if inbox.ended if inbox else not news[0][2]:
                self._close(key.fileobj)
            said += news
        for rank, kind, value in said:
            if kind == "started":
                self.pids[rank] = value
            elif kind == "refused":
                self.refusal = value
        if self.leader.fileno() < 0 and not self.refusal:
            self.refusal = self._lost()
        return [entry for entry in said if entry[0] != LEADER]

    def _lost(self) -> str:
        """Why the leader has ended."""
        if LEADER in self.pids:
            return "the process that held the ranks was ended (out of memory?), and they with it"
        return f"the fork server could start no ranks: {self.server.last_words()}"

    def _close(self, file):
        self.selector.unregister(file)
        os.close(file) if isinstance(file, int) else file.close()

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
            self.refusal = "the run is over"
            last_words += self._until_the_leader_has_ended()
            if self.leader in self.open_files:  # it is stopped, or its computer hangs
                self._kill_leader()
                last_words += self._until_the_leader_has_ended()
            last_words += self._poll(0)  # once: what is printed for ever has no end
        finally:
            for file in self.open_files:
                self._close(file)
            self.selector.close()
        return last_words

    def _until_the_leader_has_ended(self):
        deadline = time.monotonic() + END_S
        while self.leader in self.open_files and (left := deadline - time.monotonic()) > 0:
            yield from self._poll(left)

    def _kill_leader(self):
        """End the leader, and by the kernel's hand its ranks; or the fork server that has none."""
        if LEADER in self.pids:
            os.kill(self.pids[LEADER], signal.SIGKILL)
        else:
            self.server.close()

    @property
    def open_files(self) -> list:
        return [key.fileobj for key in self.selector.get_map().values()]


def read(fd) -> bytes:
    """What is there to read; nothing at the end, however it came about."""
    try:
        return os.read(fd, READ_BYTES)
    except ConnectionResetError:
        return b""


@contextlib.contextmanager
def enough_files(ranks: int):
    """Let this process open as many files as it ever may while `ranks` ranks start here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        yield
    except OSError as error:
        if error.errno not in TOO_MANY_FILES:
            raise
        need = f"{ranks} ranks need {3 * ranks} open files here"
        raise CommError(f"{need}, more than are left of the {hard} allowed (ulimit -n)") from None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def surroundings() -> dict:
    """Where ranks are to find modules and files, and their environment: as this process does."""
    directory = working_directory()
    path = [entry or directory for entry in sys.path]
    return {"path": path, "directory": directory, "environment": dict(os.environ)}


def working_directory() -> str:
    """Where this process is.  Raises CommError if that folder was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        rule = "ranks start in the working directory of this process"
        raise CommError(f"{rule}, which was removed: change to another, by os.chdir") from None
