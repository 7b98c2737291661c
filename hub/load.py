"""What a node needs for N learners: `python hub/load.py 1 10 30` plays so many, and prints a table.

Each has a JupyterLab server and a kernel, as on a hub; imports what notebooks import, runs a
function on four ranks, thinks, runs again.  Counted are the server, the kernel and all that they
start; neither browsers, which are elsewhere, nor the hub.  Memory is PSS, in which what processes
share is counted once; it is looked at all the time, and the most is kept.  A machine is crowded
when a run takes longer than the time after which `run` may give up on ranks that wait.
"""

import contextlib
import inspect
import json
import os
import platform
import queue
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from jupyter_client import BlockingKernelClient

from course.worlds import run

LEARNER_GB = 0.7  # until it is measured
CROWDED_S = inspect.signature(run).parameters["timeout"].default
ROW = "| {:>8} | {:>11} | {:>16} | {:>16} | {:>14} | {:>15} | {:>11} | {:>7} |"
HEAD = ("learners", "memory (GB)", "MB each, at work", "MB each, at rest", "processes each",
        "open files each", "slowest run", "crowded")  # fmt: skip
IMPORTS = """
import torch
from course import collectives
from course.classroom import figures, player
from course.classroom.exercises import check, predict
from course.worlds import run

def mean(comm):
    x = torch.full((100_000,), float(comm.rank))
    collectives.all_reduce(comm, x)
    return x.mean().item()
"""
RUN = "assert run(mean, 4, timeout=600) == [6.0] * 4"
ROUNDS, THINK_S, PATIENCE_S, LOOK_S = 3, 10.0, 420.0, 1.0
OTHER_WORK = 10  # times as long as a look: to look at hundreds of processes is work, too


class Desk:
    """One learner's server and kernel, with files of their own; all is to be done at `deadline`."""

    def __init__(self, folder: Path, deadline: float):
        self.folder, self.deadline, self.token = folder, deadline, secrets.token_hex(16)
        self.server, self.client, self.slowest_s = None, None, 0.0
        folder.mkdir()

    @property
    def left_s(self) -> float:
        """The seconds until the deadline.  Raises TimeoutError if there are none."""
        if (left := self.deadline - time.monotonic()) <= 0:
            raise TimeoutError
        return left

    def start(self):
        """The server."""
        options = {"ServerApp.port": 0, "ServerApp.root_dir": self.folder,
                   "ServerApp.ip": "127.0.0.1", "KernelManager.transport": "ipc",
                   "LanguageServerManager.autodetect": "False",
                   "IdentityProvider.token": self.token}  # fmt: skip
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
        own = {"HOME": str(self.folder), "JUPYTER_RUNTIME_DIR": str(self.folder / "own")}
        with open(self.folder / "log", "w") as log:
            self.server = subprocess.Popen(
                [*command, *(f"--{name}={value}" for name, value in options.items())],
                env=os.environ | own, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip

    def open(self):
        """A server with a notebook's kernel, and its imports."""
        if self.left_s:
            self.start()
        said = self._file(f"jpserver-{self.server.pid}.json")
        new = urllib.request.Request(f"{said['url']}api/kernels", b"{}", method="POST",
                                     headers={"Authorization": f"token {self.token}"})  # fmt: skip
        kernel = self._answer(new)["id"]
        self.client = BlockingKernelClient()
        self.client.load_connection_info(self._file(f"kernel-{kernel}.json"))
        self.client.start_channels(hb=False)  # a busy machine is no dead kernel
        self.client.kernel_info(reply=True, timeout=self.left_s)
        self.cell(IMPORTS)

    def _answer(self, request) -> dict:
        """Raises RuntimeError, with the end of its log, if the server fails, TimeoutError if it is
        late."""
        try:
            return json.load(urllib.request.urlopen(request, timeout=self.left_s))
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise error.reason from None
            raise RuntimeError(f"{error}\n{self._end_of_log()}") from error

    def _end_of_log(self) -> str:
        return (self.folder / "log").read_text()[-500:]

    def _file(self, name) -> dict:
        file = self.folder / "own" / name
        while self.left_s and self.server.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                return json.loads(file.read_text())
            time.sleep(0.1)
        raise RuntimeError(self._end_of_log())

    def cell(self, code):
        """Run a cell.  Raises RuntimeError if it fails."""
        done = self.client.execute_interactive(code, timeout=self.left_s, output_hook=lambda _: 0)
        if done["content"]["status"] != "ok":
            raise RuntimeError(done["content"].get("evalue", done["content"]))

    def learn(self):
        """Run on four ranks, think, run again."""
        for _ in range(ROUNDS):
            time.sleep(random.uniform(0, THINK_S))
            began = time.monotonic()
            self.cell(RUN)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def close(self):
        """End it all."""
        if self.client:
            self.client.stop_channels()
        if self.server:
            mine = processes([self])
            self.server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.wait(60)
            for left in mine:
                with contextlib.suppress(psutil.Error):
                    left.kill()
            self.server.wait()


def processes(desks) -> list:
    """The servers, their kernels, and all that these have started."""
    children = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    servers = {desk.server.pid for desk in desks if desk.server}
    found = [each for each in sum(children.values(), []) if each.pid in servers]
    for process in found:  # which grows meanwhile
        found += children.get(process.pid, [])
    return found


def footprint(desks) -> tuple:
    """(bytes, processes, open files) of all desks now."""
    memory = count = files = 0
    for process in processes(desks):
        with contextlib.suppress(psutil.Error):
            memory, files = memory + process.memory_full_info().pss, files + process.num_fds()
            count += 1
    return memory, count, files


def most_while(desks, do) -> tuple:
    """The most of each part of the footprint while `do` is done for all desks at once."""
    seen, over = [footprint(desks)], threading.Event()

    def look():
        pause_s = LOOK_S
        while not over.wait(pause_s):
            began = time.monotonic()
            seen.append(footprint(desks))
            pause_s = max(LOOK_S, OTHER_WORK * (time.monotonic() - began))

    with ThreadPoolExecutor(len(desks) + 1) as pool:
        looking = pool.submit(look)
        try:
            list(pool.map(do, desks))
        finally:
            over.set()
        looking.result()
    return tuple(map(max, zip(*seen, strict=True)))


def measured(learners: int) -> tuple:
    """A row of the table.  Raises TimeoutError if all together need more than PATIENCE_S."""
    random.seed(learners)
    deadline = time.monotonic() + PATIENCE_S
    with tempfile.TemporaryDirectory(prefix="load-", ignore_cleanup_errors=True) as folder:
        desks = [Desk(Path(folder, str(number)), deadline) for number in range(learners)]
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(Desk.open, desks))
            memory, count, files = most_while(desks, Desk.learn)
            at_rest = footprint(desks)[0]
        finally:
            with ThreadPoolExecutor(learners) as pool:
                list(pool.map(Desk.close, desks))
    slowest_s = max(desk.slowest_s for desk in desks)
    each = (round(value / learners) for value in (memory / 1e6, at_rest / 1e6, count, files))
    crowded = "yes" if slowest_s > CROWDED_S else "no"
    return learners, f"{memory / 1e9:.1f}", *each, f"{slowest_s:.1f} s", crowded


def line(learners: int, learner_gb: float) -> tuple:
    """(a line of the table, or a sentence where there can be none; the GB that one needs)."""
    need, free = learners * learner_gb, psutil.virtual_memory().available / 1e9
    if need > free:
        rule = f"{learners} learners need about {need:.1f} GB of memory"
        return f"{rule}, and {free:.1f} GB are free: not tried", learner_gb
    try:
        row = measured(learners)
    except (TimeoutError, queue.Empty):
        rule = f"{learners} learners are too many for {os.cpu_count()} cores"
        return f"{rule}: after {PATIENCE_S:g} s not all had run {ROUNDS} times", learner_gb
    return ROW.format(*row), row[2] / 1e3


if __name__ == "__main__":
    print(
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / 1e9:.0f} GB, {platform.system()} {platform.machine()}"
    )
    for row in (HEAD, ["---"] * len(HEAD)):
        print(ROW.format(*row))
    each_gb = LEARNER_GB
    for wanted in sys.argv[1:] or ["1"]:
        text, each_gb = line(int(wanted), each_gb)
        print(text, flush=True)
