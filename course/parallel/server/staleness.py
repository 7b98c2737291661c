"""Staleness: how old the weights are that a gradient was computed with, and who allows how much.

`synchronous`, `bounded` and `asynchronous` are a server's kinds of consistency, and `ServerLog`
tells afterwards what has happened.
"""

import math
from collections import Counter
from typing import NamedTuple

import torch

from course.comm.counts import required_count


class Consistency(NamedTuple):
    """When a server acts: `synchronous`, one update from the gradients of all clients, or one from
    each as it comes; and by how many pushes a client may lead the slowest when it is given weights
    (at `max_lead`; beyond it waits)."""

    synchronous: bool
    max_lead: float


def synchronous() -> Consistency:
    """All clients take a step together: the mean of their gradients, as of one large batch."""
    return Consistency(synchronous=True, max_lead=0)


def bounded(s: int) -> Consistency:
    """Every gradient at once, but no client begins a step more than `s` steps ahead of the slowest.

    Between two fetches a client is not held: with n_fetch > n_push it may get further.
    Raises ValueError unless s is a whole number of 1 or more: with 0 it would be synchronous().
    Source: Ho et al. 2013, «stale synchronous parallel».
    """
    return Consistency(synchronous=False, max_lead=required_count(s, "a bound on staleness"))


def asynchronous() -> Consistency:
    """Every gradient at once, and nobody waits.  Source: Dean et al. 2012, Downpour."""
    return Consistency(synchronous=False, max_lead=math.inf)


class Applied(NamedTuple):
    """A gradient of `client`, computed with weights of version `based`, that took part in the
    update of `version` to the next."""

    client: int
    based: int
    version: int

    @property
    def staleness(self) -> int:
        return self.version - self.based


class Pulled(NamedTuple):
    """Weights of `version` were given to `client`, whose `lead` over the slowest was so many pushes
    and who had waited `waited_s` seconds by the server's clock."""

    client: int
    version: int
    lead: int
    waited_s: float


class ServerLog(NamedTuple):
    """What a server has done: its shard's last `values` [elements], their `version` (updates so
    far), what was `applied` and `pulled` in this run, and the clients that were `lost`."""

    values: torch.Tensor
    version: int
    applied: list
    pulled: list
    lost: tuple

    @property
    def histogram(self) -> list[int]:
        """How many gradients were 0, 1, 2, ... versions old when they were applied."""
        counts = Counter(row.staleness for row in self.applied)
        return [counts[age] for age in range(1 + max(counts, default=-1))]

    @property
    def mean_staleness(self) -> float:
        """Of all gradients that were applied; nan if there were none."""
        ages = [row.staleness for row in self.applied]
        return sum(ages) / len(ages) if ages else math.nan
