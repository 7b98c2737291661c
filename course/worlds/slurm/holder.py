"""Holds a step of Slurm: `python holder.py FD NAME KEEP_S SRUN ARGUMENTS...`.

Lines go both ways over the socket FD.  The launcher says first the secret, which goes to the agents
by srun's standard input; then `busy` before a run, which is answered by `ready`, and `idle` after
it.  It hears `agent NODE ADDRESS PORT JOB.STEP` of each, `said WORDS` of what srun says, and the
end of the socket once srun has ended.  When the launcher closes the socket or dies, or after KEEP_S
seconds without a run, the step ends, and so does a job that waits in the queue under this NAME.
"""

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

DIE_WITH_PARENT = 1  # of prctl(2)
END_S = 5.0  # that srun may take to end once its agents have gone


def main(control, name: str, keep_s: float, command: list):
    """Start the step and hold it."""
    secret = read_line(control)
    srun = start(command)
    with contextlib.suppress(BrokenPipeError):
        srun.stdin.write(secret + b"\n")
        srun.stdin.flush()
    try:
        relay(control, srun, keep_s)
    finally:
        end(srun, name)


def read_line(control) -> bytes:
    """The first line; without one there is nothing to do."""
    line = b""
    while not line.endswith(b"\n"):
        line += control.recv(1) or sys.exit()
    return line.strip()


def start(command):
    """srun, which does not outlive this process."""
    parent = os.getpid()

    def die_with_parent():
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, bufsize=0, preexec_fn=die_with_parent, **pipes)


def relay(control, srun, keep_s: float):
    """Pass on what is said until srun has nothing more to say, or nobody wants it any more."""
    wakers = selectors.DefaultSelector()
    for file in (control, srun.stdout, srun.stderr):
        wakers.register(file, selectors.EVENT_READ)
    open_, idle_until = {srun.stdout, srun.stderr}, None
    while open_:
        left = None if idle_until is None else idle_until - time.monotonic()
        if left is not None and left <= 0:
            return
        for key, _ in wakers.select(left):
            if key.fileobj is control:
                word = control.recv(4096)
                if not word:
                    return
                idle_until = time.monotonic() + keep_s if word.endswith(b"idle\n") else None
                if b"busy" in word:
                    control.sendall(b"ready\n")
            elif line := key.fileobj.readline():
                control.sendall(line if line.startswith(b"agent ") else b"said " + line)
            else:
                wakers.unregister(key.fileobj)
                open_.remove(key.fileobj)


def end(srun, name: str):
    """End the step, and the job of this name."""
    with contextlib.suppress(OSError):
        srun.stdin.close()
    cancel = ["scancel", "--quiet", f"--name={name}"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # the controller may be gone
        subprocess.run(cancel, stderr=subprocess.DEVNULL, check=False, timeout=END_S)
    for ask in (lambda: None, srun.terminate, srun.kill):
        ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            srun.wait(END_S)
            return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line, (name, keep_s, *command) = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the launcher is gone
        main(line, name, float(keep_s), command)
