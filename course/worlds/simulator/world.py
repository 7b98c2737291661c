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
from course.worlds.simulator.engine import Clockwork
from course.worlds.simulator.op_counter import roofline
from course.worlds.simulator.report import Record
from course.worlds.simulator.routes import Routes
from course.worlds.simulator.stdout import Speech
from course.worlds.supervise import Supervisor


class simulated:
    """The world of ranks on an imagined `cluster`, a networkx graph (see `routes.py`).

    `device`: where their tensors are, "cpu" or "meta" (shapes only, no memory; a program gets such
    tensors by device=comm.device); `placement`: the graph's device of each rank (default: in the
    graph's order); `charge(operation, flops, bytes, device)`: seconds of an operation; `slow`
    {rank: factor} of its computing times, `jitter` the mean of a random part added to each of
    them, `dead` {rank: the second in which it dies}.
    Afterwards `record` tells of the last run.

    Raises ValueError for what cannot be.
    """

    def __init__(self, cluster, *, device="cpu", placement=None, charge=roofline, slow=None,
                 dead=None, jitter=0.0, seed=0):  # fmt: skip
        self.routes, self.device, self.charge, self.seed = Routes(cluster), device, charge, seed
        self.placement = list(self.routes.devices if placement is None else placement)
        self.slow, self.dead, self.jitter, self.record = slow or {}, dead or {}, jitter, None
        for rule, values, holds in (
            ("a slow rank's factor is positive", self.slow.values(), lambda x: x > 0),
            ("a rank dies at a second ≥ 0", self.dead.values(), lambda x: x >= 0),
            ("jitter is a number ≥ 0", [jitter], lambda x: 0 <= x < math.inf),
        ):
            for value in values:
                if not holds(value):
                    raise ValueError(f"{rule}, not {value}")
        for number, place in enumerate(self.placement):
            if place not in self.routes.numbers:
                raise ValueError(f"the cluster has no device {place!r} to place a rank on")
            if place in self.placement[:number]:
                raise ValueError(f"two ranks cannot be on one device, as {place!r}")

    def run(self, call: bytes, ranks: int, *, timeout, limit, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`.  The `limit` of a
        run, real seconds, is not kept here: an endless loop of a rank ends by an interrupt only."""
        if ranks > len(self.placement):
            here = f"the cluster has {len(self.placement)} devices"
            raise ValueError(f"each rank needs a device of its own: {ranks} ranks, but {here}")
        watch = Supervisor(ranks, Printer(ranks, live))
        traced = trace is not None
        cluster = Clockwork(self, ranks, call, timeout=timeout, checked=checked, traced=traced)
        with contextlib.ExitStack() as stack:
            stack.callback(watch.printer.finish)
            stack.enter_context(Speech(cluster.whose, watch.printer))
            try:
                cluster.run(watch)
            finally:
                self.record = Record(cluster)
        if traced:
            trace.add(ranks, watch.events)
        return watch.values()
