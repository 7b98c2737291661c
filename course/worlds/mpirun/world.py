"""Ranks in touch by MPI: the same communicator, over mpi4py.

values = run(fn, 4, on=mpi())                mpi.available() says why not, if not
mpirun -n 4 python -m mpi4py -m course.worlds.mpirun module:function     fn(comm) on each
"""

import contextlib
import faulthandler
import importlib
import importlib.util
import os
import re
import socket
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

from course.worlds.cores import cores, required_cores
from course.worlds.local.rank import prepare
from course.worlds.local.workers import Workers
from course.worlds.local.world import required_device
from course.worlds.mpirun import process_manager
from course.worlds.pickling import pack
from course.worlds.supervise import RankError, supervise

MISSING = "on=mpi() needs mpi4py and MPICH: install both with pip install mpi4py mpich"
START_S = 60.0  # that MPI may take to start: nothing else ends its waiting
# Without a network a rank has no open port, and needs none: the ranks share memory.
ON_THIS_MACHINE = {"UCX_TLS": "self,sm", "FI_PROVIDER": "shm", "FI_TCP_IFACE": "lo"}
SHARED = re.compile(r"/dev/shm/mpich_shm_\S+$", re.MULTILINE)


class mpi(NamedTuple):  # noqa: N801  (it is called like a function)
    """The world of processes on this machine in touch by MPI, fresh ones for each run.

    `device`, `oversubscribe`: as of `processes`.  The MPI is MPICH, or one that starts like it.
    """

    device: str = None
    oversubscribe: bool = False

    def run(self, call: bytes, ranks: int, **options) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`."""
        required_device(self.device)
        if importlib.util.find_spec("mpi4py") is None:
            raise ValueError(MISSING)
        required_cores(ranks, self)
        place = {"ranks": ranks, "start_s": START_S, "device": self.device}
        return supervise(MpiWorkers(ranks), call, ranks, join, place, **options)

    @staticmethod
    def available():
        """None if this machine has an MPI that starts, else the reason why it has not."""
        options = {"checked": True, "trace": None, "live": False}
        try:
            mpi().run(pack(id, (), {}), 1, timeout=START_S, limit=START_S, **options)
        except (ValueError, RankError) as error:
            return str(error).partition("\n")[0]
        return None


class MpiWorkers(Workers):
    """Ranks forked like any others, whose only line is to the process manager, which is here."""

    connected = False

    def __init__(self, ranks: int):
        super().__init__()
        self.manager, self.lines = process_manager.ProcessManager(ranks), {}

    def _start(self, rank, peers, files):
        self.lines[rank], theirs = socket.socketpair()
        self.lines[rank].setblocking(False)  # it waits for no rank that does not read
        self._listen(self.lines[rank], rank, "manager")
        with theirs:
            super()._start(rank, peers, [theirs.fileno()])

    def _poll(self, timeout) -> list:
        """What the ranks say; what they say to the process manager is answered at once."""
        heard = super()._poll(timeout)
        for rank, _, data in (entry for entry in heard if entry[1] == "manager"):
            for to, answer in self.manager.answers(rank, data):
                with contextlib.suppress(OSError):  # that rank has ended
                    self.lines[to].sendall(answer)
        return [entry for entry in heard if entry[1] != "manager"]

    def stop(self) -> list:
        """End every process of the run; return once none is left, with what they still said."""
        try:
            for pid in self.pids.values():  # an interrupt may have come before they did it
                unlink_shared_memory(pid)
        finally:  # and a second one comes now
            last_words = super().stop()
        return last_words


def join(rank, fds, *, ranks, start_s, **settings):
    """The world's communicator for `rank`, whose line to the process manager is in `fds`."""
    for name in [name for name in os.environ if "PMI" in name]:
        del os.environ[name]  # of an outer job's manager
    os.environ.update(ON_THIS_MACHINE | process_manager.environment(rank, ranks, fds[0]))
    faulthandler.dump_traceback_later(start_s, exit=True)
    import mpi4py

    mpi4py.rc.finalize = False  # it would wait for ranks that have ended
    MPI = start_mpi()
    if MPI.COMM_WORLD.size != ranks:
        library = MPI.Get_library_version().split()[0]
        rule = f"on=mpi() starts MPICH's ranks, but mpi4py uses {library} (start it by its mpirun)"
        raise ValueError(f"rank {rank} is one of {MPI.COMM_WORLD.size}, not of {ranks}: {rule}")
    from course.worlds.mpirun.channels import connect

    comm = connect(rank, **settings)
    faulthandler.cancel_dump_traceback_later()
    return comm


def start_mpi():
    """mpi4py's MPI, started.  The file by which its ranks share memory has no name from now on."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()  # all have opened it
    unlink_shared_memory()
    return MPI


def unlink_shared_memory(process="self"):
    """Remove the names of the files by which MPICH's ranks share memory, as MPI_Finalize would: few
    ranks live to call it, and each file is 1 MB a rank."""
    with contextlib.suppress(OSError):
        for name in SHARED.findall(Path(f"/proc/{process}/maps").read_text()):
            Path(name).unlink(missing_ok=True)


def main(name: str):
    """Run `module:function` as one of the ranks that an MPI has started; a failure of one ends them
    all."""
    MPI = start_mpi()
    from course.worlds.mpirun.channels import connect

    rank = MPI.COMM_WORLD.rank
    try:
        module, _, function = name.partition(":")
        comm = connect(rank, device=None, timeout=20.0, checked=True)
        prepare(rank, {"threads": max(1, cores() // comm.nodes.count(comm.node))})
        getattr(importlib.import_module(module), function)(comm)
        comm.finish()
    except BaseException:  # one that calls sys.exit() has failed too
        print(f"rank {rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
