"""Programs for the Slurm box, and what is seen of them."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import torch

from course.collectives import all_reduce
from course.worlds import slurm
from course.worlds.slurm.allocation import allocation_for

PATIENCE_S = 120.0
# For tests that name nodes: without it Slurm gives others while it takes these back of a last job.
FIRST_TWO = slurm(nodes=2, options=("--nodelist=n[1-2]",))


def release():
    """Give back all nodes."""
    while allocation_for.programs:
        allocation_for.programs.popitem()[1].close()


def until(true):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def agents():
    """The processes of agents on all nodes of this box."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, here = process.info["cmdline"] or [], process.info["environ"] or {}
        agent = any(word.endswith("slurm/agent.py") for word in words[:4])
        found += [process] * (agent and here.get("SLURM_CONF") == os.environ["SLURM_CONF"])
    return found


def host_of(process):
    inside = ["nsenter", f"--target={process.pid}", "--uts", "hostname"]
    return subprocess.run(inside, capture_output=True, text=True).stdout.strip()


def summed(comm):
    x = torch.full((1000,), float(comm.rank))
    all_reduce(comm, x)
    return comm.rank, socket.gethostname(), comm.node, x.unique().item()


def sleeps(comm):
    time.sleep(1000)


def begins(comm):
    """And says so by a file."""
    pathlib.Path(os.environ["BEGUN"], str(comm.rank)).touch()
    time.sleep(1000)


@contextlib.contextmanager
def after(true, do):
    """While something else goes on: when that is true, do so."""

    def wait():
        assert until(true)
        do()

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait)
        yield
        waiting.result()


@contextlib.contextmanager
def full(box, number, folder):
    """On one node a folder is on a disk without room."""
    there = ["nsenter", f"--target={box.pid(f'n{number}')}", "--mount"]
    box.ask(*there, "mount", "-t", "tmpfs", "-o", "size=16k", "none", folder)
    try:
        filled = box.ask(*there, "sh", "-c", f"dd if=/dev/zero of={folder}/filler 2>&1")
        assert "No space left on device" in filled
        yield
    finally:
        box.ask(*there, "umount", "--lazy", folder)


def left(box) -> list:
    """What runs have left behind: jobs, and on nodes all but Slurm's own daemon."""
    found = box.ask("squeue", "--noheader").splitlines()
    for number in range(1, box.nodes + 1):
        for pid in box.ask("ip", "netns", "pids", box.space(number)).split():
            with contextlib.suppress(psutil.NoSuchProcess):
                name = psutil.Process(int(pid)).name()
                found += [f"n{number}: {name}"] * (name != "slurmd")
    return found


def time_is_over(box):
    """The jobs' time, at once: Slurm looks every half a minute."""
    for job in box.ask("squeue", "--noheader", "--format=%i").split():
        box.ask("scontrol", "update", f"JobId={job}", "EndTime=now+1")


def kept():
    """The allocation that this process keeps."""
    [allocation] = allocation_for.programs.values()
    return allocation


PROGRAM = """
    import os, pathlib, socket, time
    from course.worlds import run, slurm

    def sleeps(comm):
        pathlib.Path(os.environ["BEGUN"], str(comm.rank)).touch()
        time.sleep(1000)

    def host(comm):
        return socket.gethostname(), comm.node

    {body}
"""


def program(body):
    """The text of a program that does so."""
    return textwrap.dedent(PROGRAM).format(body=body)


def python(body):
    """A process that runs a program."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", program(body)]
    return subprocess.Popen(command, text=True, preexec_fn=hear_interrupts, **pipes)


def hear_interrupts():
    """Not to ignore them, as a process in the background of a shell does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
