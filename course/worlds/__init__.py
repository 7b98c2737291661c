"""Where ranks live and how they start: `run(fn, ranks, on=...)` and the worlds it runs on.

launch, supervise          call a function on ranks; their values, or who failed first
local      processes()     on this machine, forked from a process that has imported torch
netns      hosts()         the same, with a real, shaped Ethernet between them
mpirun     mpi()           the same, with MPI to carry their messages
slurm      slurm()         on the nodes that Slurm allots
sockets                    how these four carry messages
simulator  simulated()     on an imagined cluster, in virtual time
meeting, torchrun          ranks that somebody else has started
"""

from course.worlds.launch import run
from course.worlds.local.world import processes
from course.worlds.mpirun.world import mpi
from course.worlds.netns.world import hosts
from course.worlds.slurm.world import slurm
from course.worlds.supervise import RankError, RunTimeout

__all__ = ["RankError", "RunTimeout", "hosts", "mpi", "processes", "run", "simulated", "slurm"]


def __getattr__(name):
    if name != "simulated":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from course.worlds.simulator.world import simulated  # real ranks do not load what it needs

    return simulated
