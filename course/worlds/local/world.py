"""The world of processes on this machine."""

from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

from course.worlds.cores import required_cores
from course.worlds.local.workers import Workers
from course.worlds.sockets.connect import connect
from course.worlds.supervise import GRACE_S, supervise


class processes(NamedTuple):  # noqa: N801  (it is called like a function)
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

    def run(self, call: bytes, ranks: int, **options) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`."""
        required_device(self.device)
        if not isinstance(self.grace_s, Real) or not self.grace_s >= 0:
            raise ValueError(f"grace_s is a number of seconds, 0 or more, not {self.grace_s!r}")
        place, options["grace_s"] = (
            {"nodes": self._nodes(ranks), "device": self.device},
            self.grace_s,
        )
        return supervise(Workers(), call, ranks, connect, place, **options)

    def _nodes(self, ranks) -> list:
        required_cores(ranks, self)
        if self.nodes is not None and not isinstance(self.nodes, Sequence):
            raise ValueError(f"nodes names a machine for each rank, as [0, 0], not {self.nodes!r}")
        nodes = list(self.nodes or [0] * ranks)
        if len(nodes) != ranks:
            raise ValueError(f"nodes names a machine for {len(nodes)} ranks, but there are {ranks}")
        return nodes


def required_device(device):
    """Raises ValueError for what is no kind of device."""
    if device not in ("cpu", "cuda", None):
        raise ValueError(f'device must be "cpu", "cuda" or None, not {device!r}')
