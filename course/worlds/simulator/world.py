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

Over links of latency a in all and b seconds a byte, n bytes take a + b n seconds, as in
`course.collectives.cost`.
"""

import contextlib
import math

from course.worlds.console import Printer
from course.worlds.simulator.engine import Simulation
from course.worlds.simulator.op_counter import roofline
from course.worlds.simulator.real_time import LimitReached, limited
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
    them, `dead` {rank: the second in which it dies}.  Afterwards `report` tells of the last run.

    All ranks live in this process, and in one thread of it.  An endless loop of a rank, such as
    `while comm.clock() < t`, in which no time passes, hangs it unless the run has a
    `limit`; `os._exit` ends it; a thread that a rank starts cannot wait for messages.

    Raises ValueError for what cannot be.
    """

    def __init__(self, cluster, *, device="cpu", placement=None, charge=roofline, slow=None,
                 dead=None, jitter=0.0, seed=0):  # fmt: skip
        self.routes, self.device, self.charge, self.seed = Routes(cluster), device, charge, seed
        self.placement = list(self.routes.devices if placement is None else placement)
        self.slow, self.dead, self.jitter = slow or {}, dead or {}, jitter
        self.report = None
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

    def run(self, call: bytes, ranks: int, *, timeout, limit, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`; `limit` is in
        seconds of real time."""
        if ranks > len(self.placement):
            here = f"the placement has {len(self.placement)} devices"
            raise ValueError(f"each rank needs a device of its own: {ranks} ranks, but {here}")
        if refusal := self._absent(ranks, f"a run of {ranks}"):
            raise ValueError(refusal)
        supervisor = Supervisor(ranks, Printer(ranks, live))
        options = {"timeout": timeout, "checked": checked, "traced": trace is not None}
        simulation = Simulation(self, ranks, call, supervisor, **options)
        captured = CapturedOutput(simulation, supervisor.printer)
        try:
            with contextlib.suppress(LimitReached), captured, limited(limit):
                simulation.run()
        finally:
            supervisor.printer.finish()
            self.report = RunReport(simulation)
        if trace is not None:
            trace.add(ranks, supervisor.events)
        return supervisor.values(limit)
