"""Staleness: how old the weights are that a gradient was computed with, and who allows how much.

`synchronous`, `bounded` and `asynchronous` are the rules of a parameter server, and `Served` tells
afterwards what has happened.
"""

import math
from typing import NamedTuple

import torch


class Rule(NamedTuple):
    """When a server acts: one update from the gradients of all clients `together`, or from each as
    it comes; and by how many pushes a client may be `ahead` of the slowest when it is given
    weights (else it waits)."""

    together: bool
    ahead: float


def synchronous() -> Rule:
    """All clients take a step together: the mean of their gradients, as of one large batch."""
    return Rule(together=True, ahead=0)


def bounded(s: int) -> Rule:
    """Every gradient at once, but no client begins a step more than `s` steps ahead of the slowest.

    Between two fetches a client is not held: with n_fetch > n_push it may get further.
    Raises ValueError unless s is a whole number of 1 or more.
    Source: Ho et al. 2013, «stale synchronous parallel».
    """
    if isinstance(s, bool) or not isinstance(s, int) or s < 1:
        raise ValueError(
            f"a bound on staleness is a whole number of steps, at least 1, not {s!r} "
            "(with 0 it would be synchronous())"
        )
    return Rule(together=False, ahead=s)


def asynchronous() -> Rule:
    """Every gradient at once, and nobody waits.  Source: Dean et al. 2012, Downpour."""
    return Rule(together=False, ahead=math.inf)


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
    """Weights of `version` were given to `client`, who was so many pushes `ahead` of the slowest
    and had waited `waited_s` seconds by the server's clock."""

    client: int
    version: int
    ahead: int
    waited_s: float


class Served(NamedTuple):
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
        counts = [0] * (1 + max((row.staleness for row in self.applied), default=-1))
        for row in self.applied:
            counts[row.staleness] += 1
        return counts

    @property
    def mean_staleness(self) -> float:
        """Of all gradients that were applied; nan if there were none."""
        ages = [row.staleness for row in self.applied]
        return sum(ages) / len(ages) if ages else math.nan
