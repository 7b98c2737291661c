"""Ranks with clocks on an imagined cluster: `run(fn, 64, on=simulated(cluster))`.

The same functions run as on real processes, one rank at a time in this process; what takes time is
charged to the clock of the rank.

* A message pays the latency of its route once, and then flows over the route at its fair share of
  every link (max-min).  `send` returns when its last byte has left, `recv` when it has arrived;
  both are the same moment if the receiver was there.  A message to oneself takes no time.
* A message is sent whether or not its receive is there.  In checked mode, outside of collectives,
  `send` also waits for that; and all ranks wait for the last to enter a collective.
* An operation takes max(flops / rate, bytes / memory rate) seconds of its device, or what
  `charge` says.  Python itself takes no time.
* `recv` from ANY takes what comes first by the cluster's time.  Two runs are equal to the last bit.

Over links of latency a in all and b seconds a byte, N bytes take a + b N seconds, as in
`course.collectives.cost`.
"""

import contextlib
import functools
import math
import time

import cloudpickle

from course.comm.communicator import Communicator
from course.worlds.console import Printer
from course.worlds.simulator.engine import Simulation
from course.worlds.simulator.op_counter import roofline
from course.worlds.simulator.real_time import LimitReached, limited
from course.worlds.simulator.recording import Recording
from course.worlds.simulator.report import RunReport
from course.worlds.simulator.routes import Routes
from course.worlds.simulator.stdout import CapturedOutput
from course.worlds.supervise import Supervisor


class simulated:  # noqa: N801  (it is called like a function)
    """The world of ranks on an imagined `cluster`, a networkx graph (see `routes.py`).

    `device`: where their tensors are, "cpu" or "meta" (shapes only, no memory; a program gets such
    tensors by device=comm.device); `placement`: the graph's device of each rank (default: in the
    graph's order); `charge(operation, flops, bytes, device)`: seconds of an operation; `slow`
    {rank: factor} of its computing times, `jitter` the mean of a random part added to each of
    them, `dead` {rank: the second in which it dies}.  Afterwards `report` tells of the last run,
    and with `record` so does `recording`, for `replay` on other clusters.

    All ranks live in this process, and in one thread of it.  An endless loop of a rank, such as
    `while comm.clock() < t`, in which no time passes, hangs it unless the run has a
    `limit`; `os._exit` ends it; a thread that a rank starts cannot wait for messages.

    Raises ValueError for what cannot be.
    """

    def __init__(self, cluster, *, device="cpu", placement=None, charge=roofline, slow=None,
                 dead=None, jitter=0.0, seed=0, record=False):  # fmt: skip
        self.routes, self.device, self.charge, self.seed = Routes(cluster), device, charge, seed
        self.placement = list(self.routes.devices if placement is None else placement)
        self.slow, self.dead, self.jitter = slow or {}, dead or {}, jitter
        self.record, self.recording, self.report = record, None, None
        if refusal := self._refusal() or self._refused_placement():
            raise ValueError(refusal)
        servers = self.routes.graph.nodes(data="server")
        self.nodes = [place if servers[place] is None else servers[place]
                      for place in self.placement]  # fmt: skip

    def _refusal(self):
        """Which rule an argument breaks, if one does."""
        for rule, values, holds in (
            ("a slow rank's factor is positive", self.slow.values(), lambda x: x > 0),
            ("a rank dies at a second ≥ 0", self.dead.values(), lambda x: x >= 0),
            ("jitter is a number ≥ 0", [self.jitter], lambda x: 0 <= x < math.inf),
        ):
            for value in values:
                if not holds(value):
                    return f"{rule}, not {value}"
        return self._absent(len(self.placement), f"a placement of {len(self.placement)} ranks")

    def _refused_placement(self):
        for number, place in enumerate(self.placement):
            if place not in self.routes.numbers:
                return f"the cluster has no device {place!r} to place a rank on"
            if place in self.placement[:number]:
                return f"two ranks cannot be on one device, as {place!r}"
        return None

    def _absent(self, ranks, where):
        """Which rank of `slow` or `dead` is not there, if one is not."""
        for role, named in (("slow", self.slow), ("dead", self.dead)):
            for rank in named:
                if isinstance(rank, bool) or rank not in range(ranks):
                    return f"there is no rank {rank!r} to be {role} in {where}"
        return None

    def _check_ranks(self, ranks):
        if ranks > len(self.placement):
            here = f"the placement has {len(self.placement)} devices"
            raise ValueError(f"each rank needs a device of its own: {ranks} ranks, but {here}")
        if refusal := self._absent(ranks, f"a run of {ranks}"):
            raise ValueError(refusal)

    def run(self, call: bytes, ranks: int, *, timeout, limit, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`; `limit` is in
        seconds of real time."""
        self._check_ranks(ranks)
        self.recording = Recording(ranks) if self.record else None
        program = functools.partial(_call_unpacked, call, self.nodes[:ranks])
        settings = {"timeout": timeout, "checked": checked, "recording": self.recording}
        return self._simulate(program, ranks, Printer(ranks, live), limit, trace, settings)

    def replay(self, recording) -> RunReport:
        """What the ranks of a Recording did, on this cluster; also `report` from now on.

        Raises ValueError where there are fewer devices than ranks.
        """
        self._check_ranks(recording.ranks)
        settings = {"timeout": None, "checked": False, "recording": None}
        printer = Printer(recording.ranks, False)
        self._simulate(recording.play, recording.ranks, printer, None, None, settings)
        return self.report

    def _simulate(self, program, ranks, printer, limit, trace, settings) -> list:
        """The values of `program(transport)` on all ranks."""
        supervisor = Supervisor(ranks, printer)
        simulation = Simulation(self, ranks, program, supervisor, traced=trace is not None,
                                **settings)  # fmt: skip
        start = time.perf_counter()
        captured = CapturedOutput(simulation, supervisor.printer)
        try:
            with contextlib.suppress(LimitReached), captured, limited(limit):
                simulation.run()
        finally:
            supervisor.printer.finish()
            self.report = RunReport(simulation, time.perf_counter() - start)
        if trace is not None:
            trace.add(ranks, supervisor.events)
        return supervisor.values(limit)


def _call_unpacked(call, nodes, transport):
    """The value of a packed call on the rank of a transport."""
    comm = Communicator(transport, range(len(nodes)), nodes)
    fn, args, kwargs = cloudpickle.loads(call)
    value = fn(comm, *args, **kwargs)
    comm.finish()
    return value
