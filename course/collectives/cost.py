"""What each collective should cost, by formula: steps, bytes and messages a rank, seconds.

The model: a message of n bytes takes alpha + n beta seconds, combining n bytes n gamma; a rank
sends one message and receives one at a time.  p ranks; lg is the logarithm to base 2.
Source: Thakur, Rabenseifner & Gropp 2005; Patarasuk & Yuan 2009 (ring).
"""

import math
from typing import NamedTuple


class Cost(NamedTuple):
    """Of one call: `steps` one after another, what each rank sends, and the bytes that are sent
    and combined one after another on the longest way through it."""

    steps: int
    sent_bytes: list
    sent_messages: list
    path_bytes: float
    combined_bytes: float = 0.0

    def seconds(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """alpha seconds a message, beta a byte sent, gamma a byte combined."""
        return self.steps * alpha + self.path_bytes * beta + self.combined_bytes * gamma


def levels(p: int) -> int:
    """ceil(lg p): the rounds of a binomial tree."""
    return math.ceil(math.log2(p))


def broadcast(p: int, nbytes: int, root: int = 0) -> Cost:
    """ceil(lg p)(alpha + n beta), down a binomial tree."""
    children = [_children((rank - root) % p, p) for rank in range(p)]
    sent = [nbytes * count for count in children]
    return Cost(levels(p), sent, children, levels(p) * nbytes)


def reduce(p: int, nbytes: int, root: int = 0) -> Cost:
    """ceil(lg p)(alpha + n beta + n gamma), up a binomial tree."""
    messages = [int(rank != root) for rank in range(p)]
    path = levels(p) * nbytes
    return Cost(levels(p), [nbytes * m for m in messages], messages, path, path)


def scatter(part_bytes: list, root: int = 0) -> Cost:
    """(p-1) alpha + (n - root's part) beta, from the root to one rank after another."""
    p, out = len(part_bytes), sum(part_bytes) - part_bytes[root]
    sent = [out if rank == root else 0 for rank in range(p)]
    return Cost(p - 1, sent, [(p - 1) * (rank == root) for rank in range(p)], out)


def gather(part_bytes: list, root: int = 0) -> Cost:
    """(p-1) alpha + (n - root's part) beta, to the root from one rank after another."""
    p = len(part_bytes)
    sent = [0 if rank == root else part_bytes[rank] for rank in range(p)]
    return Cost(p - 1, sent, [int(rank != root) for rank in range(p)], sum(sent))


def all_gather(part_bytes: list) -> Cost:
    """(p-1) alpha + n(p-1)/p beta for equal parts, round the ring."""
    p, total = len(part_bytes), sum(part_bytes)
    sent = [total - part_bytes[(rank + 1) % p] for rank in range(p)]
    return Cost(p - 1, sent, [p - 1] * p, (p - 1) * max(part_bytes))


def reduce_scatter(part_bytes: list) -> Cost:
    """(p-1) alpha + n(p-1)/p (beta + gamma) for equal parts, round the ring."""
    p, total = len(part_bytes), sum(part_bytes)
    path = (p - 1) * max(part_bytes)
    return Cost(p - 1, [total - part for part in part_bytes], [p - 1] * p, path, path)


def all_to_all(part_bytes: list) -> Cost:
    """(p-1)(alpha + n/p beta) for equal parts; part_bytes[src][dst]."""
    p = len(part_bytes)
    sent = [sum(row) - row[rank] for rank, row in enumerate(part_bytes)]
    widest = [max(part_bytes[r][(r + s) % p] for r in range(p)) for s in range(1, p)]
    return Cost(p - 1, sent, [p - 1] * p, sum(widest))


def flat_all_reduce(p: int, nbytes: int) -> Cost:
    """2(p-1)(alpha + n beta) + (p-1) n gamma, by way of rank 0."""
    messages = [p - 1] + [1] * (p - 1)
    path = 2 * (p - 1) * nbytes
    return Cost(2 * (p - 1), [nbytes * m for m in messages], messages, path, (p - 1) * nbytes)


def ring_all_reduce(p: int, elements: int, element_bytes: int) -> Cost:
    """2(p-1) alpha + 2n(p-1)/p beta + n(p-1)/p gamma; the first (elements mod p) of the p chunks
    are one element longer.  Messages: if no chunk is longer than a segment."""
    sizes = [element_bytes * (elements // p + (c < elements % p)) for c in range(p)]
    sent = [2 * sum(sizes) - sizes[(r + 1) % p] - sizes[(r + 2) % p] for r in range(p)]
    path = (p - 1) * max(sizes)
    return Cost(2 * (p - 1), sent, [2 * (p - 1)] * p, 2 * path, path)


def _children(rank: int, p: int) -> int:
    """How many ranks a rank of a binomial tree with root 0 sends to."""
    return sum(rank < 2**k and rank + 2**k < p for k in range(levels(p)))
