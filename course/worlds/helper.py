"""Programs of our own beside this process, each kept for as long as this process lives.

A helper program is started with one end of a socket, `control`; it ends when the other closes.
"""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from fcntl import F_DUPFD_CLOEXEC, fcntl

END_S = 2.0  # that a helper program may take to end by itself


class HelperProgram:
    """`python FILE FD ARGUMENTS...` where FD is its end of `control`."""

    def __init__(self, file, *arguments, environment=None):
        self.control, end = socket.socketpair()
        theirs = socket.socket(fileno=fcntl(end, F_DUPFD_CLOEXEC, 3))  # 0 to 2 are others there
        with end, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", file, str(theirs.fileno()), *map(str, arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt of the notebook is not for it
                env=environment,
            )
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        """What a program that has ended, or is about to, still said; else how it has ended."""
        self.control.settimeout(END_S)
        said = b""
        with contextlib.suppress(OSError):
            while piece := self.control.recv(1 << 16):
                said += piece
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        ended = f"it has ended with status {self.process.returncode}"
        return said.decode(errors="replace").strip() or ("" if self.alive else ended)

    def close(self):
        """End it."""
        atexit.unregister(self.close)
        self.control.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:  # it hangs, or is stopped
            self.process.kill()
            self.process.wait()


class Kept:
    """The helper programs that this process keeps, the last `most` of them, by their arguments."""

    def __init__(self, kind, most: int = 1):
        self.kind, self.most, self.programs, self.lock = kind, most, {}, threading.Lock()

    def __call__(self, *arguments) -> HelperProgram:
        """The program for these arguments: made anew if there is none, or it has ended.  The
        oldest ends first: a new one may need what it holds, as nodes of a cluster."""
        with self.lock:
            program = self.programs.pop(arguments, None)
            if program and not program.alive:
                program.close()
                program = None
            while len(self.programs) >= self.most:
                self.programs.pop(next(iter(self.programs))).close()
            self.programs[arguments] = program or self.kind(*arguments)
            return self.programs[arguments]


def search_path() -> str:
    """Where this process finds modules, for a helper program to look last."""
    return os.pathsep.join(entry or os.curdir for entry in sys.path)
