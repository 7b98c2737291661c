"""Starting ranks: `course.comm.run` of one small all-reduce against the other ways to have it."""

import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import torch

from benchmarks.report import NO_AIM, Aim, Table, judged
from benchmarks.turns import Ratio, in_turns, seconds
from course.collectives import all_reduce
from course.worlds import run
from course.worlds.cores import cores

ROOT = pathlib.Path(__file__).parents[1]
RANKS = 4
THREADS = max(1, cores() // RANKS)
AIMS = {"torchrun": Aim("≥", 10)}
GRACE_S = 10


def measure(turns) -> Table:
    """A row for each other way."""
    times = in_turns(CONTESTANTS, turns)
    ours = times.pop("run")
    rows = [{"against": name, "seconds": f"{statistics.median(theirs):.2f}",
             "run, seconds": f"{statistics.median(ours):.2f}"}
            | judged(Ratio.of(theirs, ours), AIMS.get(name, NO_AIM))
            for name, theirs in times.items()]  # fmt: skip
    return Table(f"Starting {RANKS} ranks for one all-reduce", rows, NOTE)


NOTE = """run: `course.comm.run` in a process that has called it before. ratio = the other's time \
/ run's time. The first run of a process also starts what later ones are forked from. mp.spawn is \
timed in a process that has imported torch, torchrun from its command line on; both use gloo."""


def program(comm):
    x = torch.ones(1000)
    all_reduce(comm, x)
    assert x.tolist() == [comm.size] * 1000


def later_run() -> float:
    return seconds(lambda: run(program, RANKS))


def first_run() -> float:
    """Seconds of the first run in a process that has just imported the package."""
    return python("-c", "from benchmarks.launching import later_run; print(later_run())")


def spawn() -> float:
    """Seconds of mp.spawn in a process that has just imported torch."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = RANKS, THREADS, pathlib.Path(folder, "meeting_point").as_uri()
        return python("-c", f"from benchmarks.gloo import spawn; print(spawn{arguments})")


def torchrun() -> float:
    """Seconds of a torchrun."""
    options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={RANKS}", "--module"]
    command = ["-m", "torch.distributed.run", *options, "benchmarks.gloo"]
    return seconds(lambda: finished(command, OMP_NUM_THREADS=str(THREADS)))


CONTESTANTS = {
    "run": later_run, "first run": first_run, "torchrun": torchrun, "mp.spawn": spawn,
}  # fmt: skip


def python(*arguments) -> float:
    """The number that a Python program prints."""
    return float(finished(arguments))


def finished(arguments, **environment) -> str:
    """What a Python program prints until it ends well; if this is interrupted, it is ended."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, text=True,
                               env=os.environ | environment, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    with process:
        try:
            said, complaints = process.communicate()
        except BaseException:
            end(process)
            raise
    if process.returncode:
        called = " ".join(arguments)
        raise RuntimeError(f"python {called} ended with {process.returncode}:\n{complaints}")
    return said


def end(process):
    """End a program and its process group.  It is asked first: torchrun's workers are in sessions
    of their own, and only torchrun itself can end them."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
