"""How many bytes each link carries, and how long that takes.

A cable is two links, one in each direction, and a message loads those of its route, each once.
"""

from course.comm.counts import required_count
from course.worlds.simulator.routes import Routes


def link_loads(graph, messages, placement=None) -> dict:
    """{(node, next node): bytes} of `messages` [(source rank, target rank, bytes), ...], for the
    links that carry some.

    `placement`: the device of each rank (default: in the graph's order).  Routes are those of
    `simulated`.  Raises ValueError where no links lead from one to the other.
    """
    loads = {}
    for route, nbytes in _routed(graph, messages, placement):
        for link in route.links:
            loads[link.name] = loads.get(link.name, 0) + nbytes
    return loads


def at_once_s(graph, messages, placement=None) -> float:
    """Seconds until all `messages` have arrived that leave at once and share their links fairly.

    Each takes its latency, and as long as the busiest link on its route is busy.  Exact for equal
    messages of which the last shares that link with none that ends sooner; else an upper bound.
    """
    routed, busy_s = list(_routed(graph, messages, placement)), {}
    for route, nbytes in routed:
        for link in route.links:
            busy_s[link] = busy_s.get(link, 0.0) + nbytes / link.bytes_per_s
    arrived = (route.latency_s + max((busy_s[link] for link in route.links), default=0.0)
               for route, _ in routed)  # fmt: skip
    return max(arrived, default=0.0)


def ring_all_reduce_s(graph, placement, nbytes: float) -> float:
    """2(p-1) alpha + 2N(p-1)/p beta: 2(p-1) steps, each as long as it takes until every rank's N/p
    bytes have reached the next rank.

    Exact where all steps of all ranks take equally long.  Elsewhere chunks overtake one another;
    on the rings of `tests/cluster/test_loads.py` the imagined cluster takes 0.8 to 1.2 of it.
    Source: Patarasuk & Yuan 2009.
    """
    p = required_count(len(placement), "the number of ranks")
    step = [(rank, (rank + 1) % p, nbytes / p) for rank in range(p)]
    return 2 * (p - 1) * at_once_s(graph, step, placement)


def _routed(graph, messages, placement):
    routes = Routes(graph)
    devices = routes.devices if placement is None else placement
    for src, dst, nbytes in messages:
        if not 0 <= min(src, dst) <= max(src, dst) < len(devices):
            raise ValueError(
                f"{len(devices)} ranks have a device, and a message goes {src} → {dst}"
            )
        if not nbytes >= 0:
            raise ValueError(f"a message of 0 bytes or more goes {src} → {dst}, not of {nbytes}")
        for rank in (src, dst):
            if devices[rank] not in routes.numbers:
                raise ValueError(
                    f"rank {rank} is on {devices[rank]!r}, which is no device of the cluster"
                )
        yield routes.route(devices[src], devices[dst]), nbytes
