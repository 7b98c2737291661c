"""Run a function on many ranks, from a script or a notebook cell, and get its values back.

values = run(fn, 4, ...)        fn(comm, ...) on each of four ranks; their values, by rank
"""

from numbers import Real
from typing import Protocol, runtime_checkable

from course.comm.trace import Trace
from course.worlds.local.world import processes
from course.worlds.pickling import pack


@runtime_checkable
class World(Protocol):
    """Where ranks live, as `on` names it: makes them, supervises them, and ends them."""

    def run(self, call: bytes, ranks: int, *, timeout, limit, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; options and errors are those of `run`."""
        ...


def run(
    fn, ranks, *args,
    on=None, timeout=20.0, limit=None, checked=True, trace=None, live=False, **kwargs,
):  # fmt: skip
    """Call `fn(comm, *args, **kwargs)` on `ranks` ranks and return their values, by rank.

    `on` is the world (default: `processes()`).  `fn` may be defined in a cell; it and its arguments
    travel by value.  `timeout` bounds the seconds in which nothing moves while a rank waits, and
    `limit` those of the run (None: no bound).  `checked` compares every call between ranks.  A
    `Trace` takes in the events.  Rank 0 prints as it goes and the others at the end, or all at once
    if `live`.  Each rank starts with random seeds of its own: its number.

    Raises RankError for the first rank that failed; at the limit RunTimeout, a RankError that says
    where each rank was, and so does the KeyboardInterrupt of a run; CommError if ranks cannot
    start; ValueError for what cannot be run.
    """
    __tracebackhide__ = True
    world = processes() if on is None else on
    bounds, switches = {"time-out": timeout, "limit": limit}, {"checked": checked, "live": live}
    if refusal := _refusal(ranks, world, trace, bounds, switches):
        raise ValueError(refusal)
    call, settings = pack(fn, args, kwargs), {"timeout": timeout, "limit": limit, **switches}
    return world.run(call, ranks, trace=trace, **settings)


def _refusal(ranks, world, trace, bounds, switches):
    """Why there can be no such run, if so."""
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        return f"a run needs a whole number of ranks, at least 1, not {ranks!r}"
    for name, seconds in bounds.items():
        if seconds is not None and not (isinstance(seconds, Real) and seconds > 0):
            return f"a {name} is a positive number of seconds, or None, not {seconds!r}"
    if trace is not None and not isinstance(trace, Trace):
        return f"trace must be a Trace(), not {trace!r}"
    for name, value in switches.items():
        if not isinstance(value, bool):
            return f"{name} is True or False, not {value!r}"
    if isinstance(world, type) or not isinstance(world, World):
        return f"on must be a world such as processes(), not {world!r}"
    return None
