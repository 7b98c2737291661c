"""Ranks that an MPI has started: the same communicator, over mpi4py.

values = run(fn, 4, on=mpi())                                         from a cell or a script
mpirun -n 4 python -m mpi4py -m course.worlds.mpirun module:function  from a shell: fn(comm) on each
"""

import contextlib
import importlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

from course.comm.errors import CommError
from course.worlds.cores import cores, required_cores
from course.worlds.frames import receive
from course.worlds.local.rank import prepare
from course.worlds.local.workers import Workers
from course.worlds.mpirun import placeholder
from course.worlds.pickling import pack
from course.worlds.supervise import supervise

INSTALL = "install both with pip install mpi4py mpich"
LOOK_UP_S = 0.1  # how often a launcher that waits for doormen looks whether they can still come
ON_THIS_MACHINE = {
    "UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo", "HYDRA_LAUNCHER": "fork",
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}  # fmt: skip


class mpi(NamedTuple):
    """The world of processes on this machine in touch by MPI, fresh ones for each run.

    `manager`: the program that starts an MPI's ranks, installed with this Python or on PATH;
    `device`, `oversubscribe`: as of `processes`.
    """

    manager: str = "mpirun"
    device: str = None
    oversubscribe: bool = False

    def run(self, call: bytes, ranks: int, *, timeout, limit, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`."""
        if importlib.util.find_spec("mpi4py") is None:
            raise ValueError(f"on=mpi() needs mpi4py and an MPI: {INSTALL}")
        required_cores(ranks, self.oversubscribe)
        settings = {"device": self.device, "timeout": timeout, "checked": checked}
        world = pack(join, (), {"ranks": ranks} | settings)
        workers = MpiWorkers(self._manager())
        return supervise(workers, call, world, ranks, trace=trace, live=live, limit=limit)

    def _manager(self) -> str:
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        found = shutil.which(self.manager, path=places)
        if found is None:
            raise ValueError(f"on=mpi() finds no program {self.manager}: {INSTALL}")
        return found


class MpiWorkers(Workers):
    """Ranks forked like any others, in place of doormen that an MPI's process manager started."""

    def __init__(self, manager: str):
        super().__init__()
        self.program, self.manager, self.doors = manager, None, []

    def start(self, jobs: list):
        """Start a rank for each of `jobs`.  Raises CommError if the manager cannot."""
        environments = []
        for rank, (environment, line) in enumerate(self._doormen(len(jobs))):
            self._start(rank, line)
            environments.append(environment)
        self._send_jobs(jobs, environments)

    def stop(self) -> list:
        """End every process of the run; return once none is left, with what they still said."""
        try:
            return super().stop()
        finally:
            for door in self.doors:  # their doormen go with them
                door.close()
            if self.manager:
                self.manager.terminate()
                self.manager.wait()

    def _doormen(self, count) -> list:
        """(its environment, [its line to the manager] if it has one) of each placeholder."""
        with tempfile.TemporaryDirectory(prefix="course-") as folder:
            path, said = Path(folder, "entrance"), Path(folder, "said")
            with socket.socket(socket.AF_UNIX) as entrance:
                entrance.bind(str(path))
                entrance.listen(count)
                entrance.settimeout(LOOK_UP_S)
                self._call_manager(count, path, said)
                return [self._admit(entrance, said) for _ in range(count)]

    def _call_manager(self, count, path, said):
        rank = [sys.executable, "-I", "-S", placeholder.__file__, path]
        with said.open("wb") as output:
            self.manager = subprocess.Popen(
                [self.program, "-n", str(count), *rank],
                env=ON_THIS_MACHINE | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # an interrupt of the notebook is not for it
            )

    def _admit(self, entrance, said):
        while True:
            with contextlib.suppress(TimeoutError):
                door, _ = entrance.accept()
                break
            if self.manager.poll() is not None:
                words = said.read_text(errors="replace").strip()
                raise CommError(f"{self.program} has started no ranks, but says: {words}")
        self.doors.append(door)
        door.setblocking(True)
        _, fds, _, _ = socket.recv_fds(door, 1, 1)
        return receive(door), [socket.socket(fileno=fd) for fd in fds]


def join(rank, fds, *, ranks, **settings):
    """The world's communicator for `rank`, forked in place of a doorman whose line is in `fds`."""
    if fds:
        os.environ[placeholder.LINE] = str(fds[0])
    from mpi4py import MPI  # which starts MPI

    if MPI.COMM_WORLD.size != ranks:
        library = MPI.Get_library_version().split()[0]
        rule = f"mpi4py uses {library}, whose own program must start the ranks"
        raise ValueError(f"rank {rank} is one of {MPI.COMM_WORLD.size}, not of {ranks}: {rule}")
    from course.worlds.mpirun.channels import connect

    return connect(rank, **settings)


def main(name: str):
    """Run `module:function` as one of the ranks that an MPI has started; a failure of one ends them
    all."""
    from mpi4py import MPI

    from course.worlds.mpirun.channels import connect

    rank = MPI.COMM_WORLD.rank
    try:
        module, _, function = name.partition(":")
        comm = connect(rank, device=None, timeout=20.0, checked=True)
        prepare(rank, {"threads": max(1, cores() // comm.nodes.count(comm.node))})
        getattr(importlib.import_module(module), function)(comm)
        comm.finish()
        comm._transport.withdraw()
    except BaseException:  # one that calls sys.exit() has failed too
        print(f"rank {rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
