"""The world: communicators, launching, tracing."""

from course.comm.communicator import ANY, Communicator
from course.comm.errors import CommError, CommMismatch, CommTimeout, PeerLost
from course.comm.hosts import hosts
from course.comm.launch import processes, run
from course.comm.mpi import mpi
from course.comm.trace import Trace
from course.comm.watch import RankError

__all__ = [
    "ANY", "CommError", "CommMismatch", "CommTimeout", "Communicator", "PeerLost", "RankError",
    "Trace", "hosts", "mpi", "processes", "run",
]  # fmt: skip
