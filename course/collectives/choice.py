"""Which all-reduce is the fastest: reckoned from `cost.py` for a size, the ranks' nodes and what
messages cost inside of a node and across."""

import functools
from typing import NamedTuple

from course.collectives import cost
from course.collectives.hierarchical import ranks_by_node


class Link(NamedTuple):
    """Seconds of a message, and of each of its bytes."""

    alpha_s: float
    beta_s_per_byte: float


class Fabric(NamedTuple):
    """`inside` a node a message takes so long from rank to rank; `across`, over the adapter that a
    node's ranks share; `memory`: a meeting at memory that they share, and a byte copied there
    (None: they share none); `gamma_s_per_byte`: combining."""

    inside: Link
    across: Link
    memory: Link | None = None
    gamma_s_per_byte: float = 0.0


# Processes of one machine as measured on two cores; hosts a 1 Gb/s Ethernet apart.
THIS_MACHINE = Fabric(Link(80e-6, 2.5e-10), Link(150e-6, 8.3e-9), Link(40e-6, 7e-11), 7e-11)


class Choice(NamedTuple):
    """The fastest `algorithm`, the `seconds` that each should take, and all that in a sentence."""

    algorithm: str
    seconds: dict
    reason: str


@functools.lru_cache(maxsize=1024)
def choose(
    nodes: tuple, elements: int, element_bytes: int, fabric: Fabric = THIS_MACHINE
) -> Choice:
    """The fastest all-reduce of so many elements on ranks on these `nodes`.

    If several ranks share a node's adapter, the steps of all but the hierarchical one, and of a
    ring in order, are charged as if all their messages crossed it: an upper bound.
    """
    seconds = predicted(tuple(nodes), elements, element_bytes, fabric)
    best, *others = sorted(seconds, key=lambda name: seconds[name])
    ranks = f"{elements * element_bytes} bytes on {len(nodes)} ranks of {len(set(nodes))} nodes"
    behind = ", ".join(f"{name} {seconds[name]:.3g} s" for name in others)
    reason = f"{best} should take {seconds[best]:.3g} s for {ranks}; {behind}"
    return Choice(best, seconds, reason)


def predicted(nodes: tuple, elements: int, element_bytes: int, fabric: Fabric) -> dict:
    """{algorithm: seconds that its cost comes to on a fabric}."""
    p, nbytes, sizes = len(nodes), elements * element_bytes, (elements, element_bytes)
    costs = cost.all_reduces(p, *sizes)
    rings, gamma = ranks_by_node(nodes), fabric.gamma_s_per_byte
    alpha, beta = fabric.across if len(rings) > 1 else fabric.inside
    contiguous = sum(here != there for here, there in zip(nodes, nodes[1:])) == len(rings) - 1
    ranks_per_adapter = max(map(len, rings)) if len(rings) > 1 else 1
    sharing = dict.fromkeys(costs, ranks_per_adapter) | ({"ring": 1} if contiguous else {})
    seconds = {name: costs[name].seconds(alpha, beta * sharing[name], gamma) for name in costs}
    seconds["halving_doubling"] += 2 * nbytes * gamma  # it turns the tensor, and back
    near = fabric.memory or fabric.inside
    inside = cost.inside_by_memory if fabric.memory else cost.inside_nodes
    shared_beta = fabric.across.beta_s_per_byte * min(map(len, rings))  # owners send at once
    across = cost.across_nodes(nodes, *sizes).seconds(alpha, shared_beta, gamma)
    seconds["hierarchical"] = inside(nodes, *sizes).seconds(*near, gamma) + across
    return seconds
