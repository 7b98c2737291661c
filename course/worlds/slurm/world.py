"""The world of nodes that Slurm allots.

values = run(fn, 64, on=slurm(nodes=8))        slurm.available() says why not, if not
"""

import math
import re
import shutil
import threading
from numbers import Real
from typing import NamedTuple

from course.comm.errors import CommError
from course.worlds.local.world import required_device
from course.worlds.slurm.allocation import allocation_for
from course.worlds.slurm.node_workers import NodeWorkers
from course.worlds.sockets.connect import connect
from course.worlds.sockets.door import interface_of
from course.worlds.supervise import supervise

MISSING = (
    "on=slurm() needs Slurm, and there is no srun here: work on a login node of a cluster, or "
    "inside a job; on one machine use processes() or hosts()"
)
ONE_RUN = threading.Lock()  # at a time in this process: runs share the lines to their nodes
TIME = re.compile(r"\d+(-\d+(:\d+){0,2}|(:\d+){0,2})", re.ASCII)


class slurm(NamedTuple):  # noqa: N801  (it is called like a function)
    """The world of `nodes` nodes that Slurm allots, over which the ranks are dealt in equal blocks.

    On a login node a run asks for a job of its own: `partition`, `account`, `gpus_per_node`,
    `cpus_per_node` (default: one a rank), `time` ("00:10:00") are its request, `options` more of
    srun's ("--constraint=a100",).  Inside a job the run is a step of it.  The nodes are kept for
    the next run for `keep_s` seconds, within their `time`; an interrupt, or the end of this
    process, gives them back.
    Ranks of a node share memory; between nodes go TCP connections, which only those who know the
    run's secret can open.  What goes over them is not encrypted; gloo and NCCL (`comm.native`) have
    ports of their own, without a secret.  `device`, `oversubscribe`: as of `processes`.
    """

    nodes: int = 1
    partition: str = None
    account: str = None
    gpus_per_node: int = 0
    cpus_per_node: int = None
    time: str = "00:10:00"
    options: tuple = ()
    keep_s: float = 60.0
    device: str = None
    oversubscribe: bool = False

    def run(self, call: bytes, ranks: int, *, trace=None, **options) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`.  Raises CommError
        where Slurm gives no nodes, and says why."""
        self._check(ranks)
        if shutil.which("srun") is None:
            raise ValueError(MISSING)
        with ONE_RUN:
            return self._run(call, ranks, trace, options)

    def _run(self, call, ranks, trace, options):
        nodes = [rank * self.nodes // ranks for rank in range(ranks)]
        allocation = self._nodes(math.ceil(ranks / self.nodes))
        self._required_cores(allocation, nodes)
        try:
            workers = NodeWorkers(allocation, nodes)
            place = {"nodes": nodes, "device": self.device,
                     "addresses": [agent.door[0] for agent in allocation.agents]}  # fmt: skip
            values = supervise(workers, call, ranks, join, place, trace=trace, **options)
        except (KeyboardInterrupt, CommError):  # a node that does not answer is not kept
            allocation.close()
            raise
        finally:
            allocation.idle()
        if trace is not None:
            trace.clocks = workers.clocks
        return values

    @staticmethod
    def available():
        """None if there is a Slurm with a partition that is up, else the reason why not."""
        from course.worlds.slurm.queue import ask

        if shutil.which("srun") is None:
            return MISSING
        states = ask("sinfo", "--noheader", "--format=%a").split()
        if not states:
            return "Slurm's controller does not answer here (see `sinfo`)"
        return None if "up" in states else "no partition of this Slurm is up (see `sinfo`)"

    def _check(self, ranks):
        required_device(self.device)
        if type(self.nodes) is not int or not 1 <= self.nodes <= ranks:
            raise ValueError(
                f"nodes is a number from 1 to that of the ranks, {ranks}, not {self.nodes!r}"
            )
        for name in ("gpus_per_node", "cpus_per_node"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ValueError(f"{name} is a whole number, 0 or more, not {value!r}")
        if not isinstance(self.time, str) or not TIME.fullmatch(self.time):
            rule = 'time is written as Slurm does, "00:10:00" or "1-12" (days-hours)'
            raise ValueError(f"{rule}, not {self.time!r}")
        if not isinstance(self.keep_s, Real) or not 0 <= self.keep_s < math.inf:
            raise ValueError(f"keep_s is a number of seconds, 0 or more, not {self.keep_s!r}")

    def _nodes(self, ranks_a_node):
        """The nodes kept from the last run, or fresh ones."""
        cpus = self.cpus_per_node or ranks_a_node
        wanted = [f"--cpus-per-task={cpus}", f"--time={self.time}"]
        wanted += [f"--partition={self.partition}"] * bool(self.partition)
        wanted += [f"--account={self.account}"] * bool(self.account)
        wanted += [f"--gpus-per-node={self.gpus_per_node}"] * bool(self.gpus_per_node)
        request = self.nodes, self.keep_s, (*wanted, *self.options)
        allocation = allocation_for(*request)
        if not allocation.busy():  # its time is over, or its job was cancelled
            allocation.close()
            allocation = allocation_for(*request)
            allocation.busy()
        return allocation

    def _required_cores(self, allocation, nodes):
        for number, agent in enumerate(allocation.agents):
            here, most = nodes.count(number), max(4, 2 * agent.cores)
            if here > most and not self.oversubscribe:
                allocation.idle()
                raise ValueError(
                    f"{here} ranks on the {agent.cores} cores that the job has on {agent.node} "
                    f"would mostly wait for one another: at most {most} run there, unless you "
                    "pass oversubscribe=True to slurm()"
                )


def join(rank, fds, *, nodes, addresses, **settings):
    """The world's communicator for `rank`; `addresses`: of the nodes."""
    own = addresses[nodes[rank]]
    settings["interface"] = interface_of(own)
    return connect(rank, fds, nodes=nodes, address=own, **settings)
