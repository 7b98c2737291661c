"""Shards: the parameters as one flat vector, cut into a part for each server.

`shard_plan` says who keeps which part of it, `step_bytes` what that costs; all ranks `agree` on a
plan.  The plan that is drawn and costed is the one that runs.
"""

from typing import NamedTuple

from course.comm.counts import required_count
from course.parallel.server.messages import REPLY_BYTES, REQUEST_BYTES


class Plan(NamedTuple):
    """Which ranks are servers and which are clients; server number k keeps the elements
    bounds[k] to bounds[k + 1] of the flat parameters (none, where these are equal)."""

    servers: tuple
    clients: tuple
    bounds: tuple

    def shard(self, number: int) -> slice:
        """Where the part of server number `number` lies in the flat parameters."""
        return slice(self.bounds[number], self.bounds[number + 1])

    def describe(self, number: int) -> str:
        """A server in words."""
        return f"server rank {self.servers[number]} (shard {number} of {len(self.servers)})"


def shard_plan(ranks: int, servers: int, elements: int) -> Plan:
    """The first `servers` of `ranks` ranks keep even parts of `elements` parameters; the others
    are clients.  Raises ValueError where one of either is missing."""
    required_count(ranks, "the number of ranks")
    required_count(servers, "the number of servers")
    required_count(elements, "the number of parameters", least=0)
    if servers >= ranks:
        raise ValueError(f"{servers} servers among {ranks} ranks leave no rank to be a client")
    bounds = tuple(elements * number // servers for number in range(servers + 1))
    return Plan(tuple(range(servers)), tuple(range(servers, ranks)), bounds)


def agree(comm, plan: Plan, values):
    """All ranks begin with the same `plan` for flat parameters `values` [elements].

    Cost: a barrier.  Raises ValueError for a plan that does not fit the ranks or the elements,
    CommMismatch where the ranks' plans differ, PeerLost.
    """
    everyone, bounds = sorted((*plan.servers, *plan.clients)), list(plan.bounds)
    if everyone != list(range(comm.size)):
        raise ValueError(
            f"rank {comm.rank}: a plan gives each of {comm.size} ranks one part to play, but this "
            f"one has servers {list(plan.servers)} and clients {list(plan.clients)}"
        )
    fits = len(bounds) == len(plan.servers) + 1 and bounds == sorted(bounds)
    if not fits or (bounds[0], bounds[-1]) != (0, values.numel()):
        raise ValueError(
            f"rank {comm.rank}: {len(plan.servers)} shards of {values.numel()} parameters cannot "
            f"have the bounds {bounds}"
        )
    told = {"servers": list(plan.servers), "bounds": bounds if len(bounds) < 9 else hash(plan)}
    with comm.collective("parameter_server", values, **told):
        comm.barrier()  # whoever is done with an earlier use must not be heard before its time


def step_bytes(plan: Plan, itemsize: int) -> list[int]:
    """What each rank sends for one pull and one push of every client: 2 W values a client go
    through the servers' links, spread over them as the parameters are.

    Source: Dean et al. 2012; the sums: own.
    """
    sent = dict.fromkeys(plan.clients, 0)
    for number, server in enumerate(plan.servers):
        part = plan.shard(number)
        nbytes = (part.stop - part.start) * itemsize
        sent[server] = len(plan.clients) * (REPLY_BYTES + nbytes)
        for client in plan.clients:
            sent[client] += 2 * REQUEST_BYTES + nbytes
    return [sent[rank] for rank in range(len(sent))]
