"""A learner's server on its node: `python learner.py COMMAND...` runs the command.

Keys and sockets of its kernels lie in a folder that no other user can enter, on a disk of this
node (a home may be full, far, or have a path too long for a socket); it goes with the server.
"""

import os
import signal
import subprocess
import sys
import tempfile

COMPILED = "~/.cache/torchinductor"  # else in a folder of /tmp whose name everybody can guess
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(command: list) -> int:
    """Run the command to its end; whoever asks for an end is told on."""
    os.umask(0o077)  # of notebooks, too, whatever the home allows
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as own:
        os.environ["JUPYTER_RUNTIME_DIR"] = own
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.expanduser(COMPILED))
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        server = subprocess.Popen(command, preexec_fn=hear)
        for number in ENDS:
            signal.signal(number, lambda *_: server.terminate())
        hear()
        return server.wait()


def hear():
    """No longer hold back what asks for an end."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
