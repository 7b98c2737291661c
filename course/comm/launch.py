"""Run a function on many ranks, from a script or a notebook cell, and get its values back.

values = run(fn, 4, ...)        fn(comm, ...) on each of four ranks; their values, by rank
"""

from numbers import Real
from typing import NamedTuple

from course.comm.cores import cores
from course.comm.crew import Crew
from course.comm.output import Printer
from course.comm.process import connect
from course.comm.shipping import pack
from course.comm.trace import Trace
from course.comm.watch import GRACE_S, Watch

DEVICES = ("cpu", "cuda", None)


class processes(NamedTuple):
    """The world of processes on this machine, fresh ones for each run, in touch by sockets that
    have no address.

    `nodes`: the machine that each rank poses as being on (one entry a rank; default: all on 0);
    `device`: "cpu", "cuda" (the ranks share what GPUs there are), None (a GPU each if there are
    enough, else the CPU); `oversubscribe` permits many more ranks than cores.  Once a rank has
    failed, the others have `grace_s` seconds to end by themselves (math.inf: they go on, and what
    they return is in the RankError's `values`).
    """

    nodes: tuple = None
    device: str = None
    oversubscribe: bool = False
    grace_s: float = GRACE_S

    def run(self, call: bytes, ranks: int, *, timeout, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`."""
        if self.device not in DEVICES:
            raise ValueError(f'device must be "cpu", "cuda" or None, not {self.device!r}')
        if not self.grace_s >= 0:
            raise ValueError(f"grace_s is a number of seconds, 0 or more, not {self.grace_s!r}")
        world = {"nodes": self._nodes(ranks), "device": self.device}
        world = pack(connect, (), world | {"timeout": timeout, "checked": checked})
        return follow(Crew(), call, world, ranks, trace=trace, live=live, grace_s=self.grace_s)

    def _nodes(self, ranks) -> list:
        most = max(4, 2 * cores())
        if ranks > most and not self.oversubscribe:
            raise ValueError(
                f"{ranks} ranks on {cores()} cores would mostly wait for one another: at most "
                f"{most} run here, unless you pass on=processes(oversubscribe=True)"
            )
        nodes = list(self.nodes or [0] * ranks)
        if len(nodes) != ranks:
            raise ValueError(f"nodes names a machine for {len(nodes)} ranks, but there are {ranks}")
        return nodes


def follow(crew, call: bytes, world: bytes, ranks: int, *, trace, live, grace_s=GRACE_S) -> list:
    """The values of a packed call on the ranks of a crew, each of which joins the `world` first, by
    a packed call that makes its communicator."""
    job = {"call": call, "world": world, "threads": max(1, cores() // ranks)}
    watch = Watch(ranks, Printer(ranks, live))
    try:
        crew.start([job] * ranks)
        watch.until_settled(crew, grace_s)
    finally:
        watch.hear(crew.stop(), stopped=True)
        watch.printer.finish()
    if trace is not None:
        trace.add(ranks, watch.events)
    return watch.values()


def run(fn, ranks, *args, on=None, timeout=20.0, checked=True, trace=None, live=False, **kwargs):
    """Call `fn(comm, *args, **kwargs)` on `ranks` ranks and return their values, by rank.

    `on` is the world (default: `processes()`).  `fn` may be defined in a cell; it and its arguments
    travel by value.  `timeout` bounds each blocked operation in seconds, not the run (None: no
    bound).  `checked` compares every call between ranks.  A `Trace` takes in the events.  Rank 0
    prints as it goes and the others at the end, or all at once if `live`.  Each rank starts with
    random seeds of its own: its number.

    Raises RankError for the first rank that failed; ValueError for what cannot be run.
    """
    __tracebackhide__ = True
    world = processes() if on is None else on
    if refusal := _refusal(ranks, timeout, trace, world):
        raise ValueError(refusal)
    call = pack(fn, args, kwargs)
    return world.run(call, ranks, timeout=timeout, checked=checked, trace=trace, live=live)


def _refusal(ranks, timeout, trace, world):
    """Why there can be no such run, if so."""
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        return f"a run needs a whole number of ranks, at least 1, not {ranks!r}"
    if timeout is not None and not (isinstance(timeout, Real) and timeout > 0):
        return f"a time-out is a positive number of seconds, or None, not {timeout!r}"
    if trace is not None and not isinstance(trace, Trace):
        return f"trace must be a Trace(), not {trace!r}"
    if isinstance(world, type) or not hasattr(world, "run"):
        return f"on must be a world such as processes(), not {world!r}"
    return None
