"""Which device each rank is on: lists that `simulated(graph, placement=...)` takes.

contiguous(graph, 16)              a server is filled before the next one
round_robin(graph, 16)             the servers take turns
shuffled(graph, 16, seed=0)        anywhere
"""

import itertools

import numpy as np

from course.comm.counts import required_count


def contiguous(graph, ranks: int, servers=None) -> list:
    """Devices of the `servers` (default: all, by number), those of one before those of the next.

    In what order `servers` are given says whether a job stays in a pod.  Raises ValueError, as all
    of these, where there are not enough devices.
    """
    return _first(ranks, itertools.chain(*_devices(graph, servers)), servers)


def round_robin(graph, ranks: int, servers=None) -> list:
    """The first device of each of the servers, then the second of each, and so on."""
    dealt = itertools.chain(*itertools.zip_longest(*_devices(graph, servers)))
    return _first(ranks, (device for device in dealt if device is not None), servers)


def shuffled(graph, ranks: int, seed: int, servers=None) -> list:
    """The devices of the first servers that suffice, in random order."""
    chosen = contiguous(graph, ranks, servers)
    return [chosen[number] for number in np.random.default_rng(seed).permutation(ranks)]


def _devices(graph, servers):
    """The devices of each server."""
    by_server = {}
    for device, node in graph.nodes(data=True):
        if node.get("device") is not None:
            by_server.setdefault(node["server"], []).append(device)
    chosen = dict.fromkeys(by_server if servers is None else servers)
    for server in chosen:
        if server not in by_server:
            raise ValueError(f"there is no server {server!r} among the {len(by_server)} of them")
    return [by_server[server] for server in chosen]


def _first(ranks, devices, servers):
    required_count(ranks, "the number of ranks")
    chosen = list(itertools.islice(devices, ranks))
    if len(chosen) < ranks:
        where = "the cluster has" if servers is None else f"servers {[*servers]} have"
        raise ValueError(f"{ranks} ranks need a device each, and {where} {len(chosen)}")
    return chosen
