"""Run a function on many ranks, from a script or a notebook cell, and get its values back.

values = run(fn, 4, ...)        fn(comm, ...) on each of four ranks; their values, by rank
"""

from typing import NamedTuple

from course.comm.cores import cores
from course.comm.crew import Crew
from course.comm.output import Printer
from course.comm.shipping import pack
from course.comm.watch import Watch


class processes(NamedTuple):
    """The world of processes on this machine, fresh ones for each run, in touch by sockets that
    have no address.

    `nodes`: the machine that each rank poses as being on (one entry a rank; default: all on 0);
    `device`: "cpu", "cuda" (the ranks share what GPUs there are), None (a GPU each if there are
    enough, else the CPU); `oversubscribe` permits many more ranks than cores.
    """

    nodes: tuple = None
    device: str = None
    oversubscribe: bool = False

    def run(self, call: bytes, ranks: int, *, timeout, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`."""
        nodes = self._nodes(ranks)
        world = {"nodes": nodes, "device": self.device, "timeout": timeout, "checked": checked}
        job = {"call": call, "world": world, "threads": max(1, cores() // ranks)}
        crew, watch = Crew(), Watch(ranks, Printer(ranks, live))
        try:
            crew.start([job] * ranks)
            watch.until_settled(crew)
        finally:
            watch.hear(crew.stop(), stopped=True)
            watch.printer.finish()
        if trace is not None:
            trace.add(ranks, watch.events)
        return watch.values()

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
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"a run needs a whole number of ranks, at least 1, not {ranks!r}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"a time-out is a positive number of seconds, or None, not {timeout!r}")
    world = processes() if on is None else on
    call = pack(fn, args, kwargs)
    return world.run(call, ranks, timeout=timeout, checked=checked, trace=trace, live=live)
