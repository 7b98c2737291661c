"""What each collective should cost, by formula: steps, bytes and messages a rank, seconds.

The model: a message of n bytes takes alpha + n beta seconds, combining n bytes n gamma; a rank
sends one message and receives one at a time.  p ranks; lg is the logarithm to base 2.

Seconds are those of an imagined cluster of one switch (`simulated`), where messages that leave or
reach a rank at the same time share its link, but pay alpha side by side: `at_once` says how many
do.  The literature counts one alpha a step: `cost._replace(at_once=0)`. Source: Thakur,
Rabenseifner & Gropp 2005; Patarasuk & Yuan 2009 (ring).
"""

import math
import random
import statistics
from typing import NamedTuple

from course.collectives.doubling import halvings, meetings
from course.collectives.hierarchical import owner, rings
from course.comm.transport import NODE_MEMORY_BYTES


class Cost(NamedTuple):
    """Of one call: `steps` one after another, what each rank sends, and the bytes that are sent
    and combined one after another on the longest way through it."""

    steps: int
    sent_bytes: list
    sent_messages: list
    path_bytes: float
    combined_bytes: float = 0.0
    at_once: int = 0

    def seconds(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """alpha seconds a message, beta a byte sent, gamma a byte combined."""
        alphas = self.steps - self.at_once
        return alphas * alpha + self.path_bytes * beta + self.combined_bytes * gamma

    def then(self, other: "Cost") -> "Cost":
        """The cost of both calls, one after the other."""
        both = zip(self, other)
        return Cost(*[[x + y for x, y in zip(a, b)] if isinstance(a, list) else a + b
                      for a, b in both])  # fmt: skip


def levels(p: int) -> int:
    """ceil(lg p): the rounds of a binomial tree."""
    return math.ceil(math.log2(p))


def broadcast(p: int, nbytes: int, root: int = 0) -> Cost:
    """ceil(lg p)(alpha + n beta), down a binomial tree."""
    children = [_children((rank - root) % p, p) for rank in range(p)]
    sent = [nbytes * count for count in children]
    return Cost(levels(p), sent, children, levels(p) * nbytes)


def reduce(p: int, nbytes: int, root: int = 0) -> Cost:
    """ceil(lg p)(alpha + n beta + n gamma), up a binomial tree.

    At p != 2^k one alpha less, since a rank without children need not wait for its turn; at
    p = 2^k + 1 the tree is even faster than that if messages are long.
    """
    messages = [int(rank != root) for rank in range(p)]
    path, at_once = levels(p) * nbytes, levels(p) - (p.bit_length() - 1)
    return Cost(levels(p), [nbytes * m for m in messages], messages, path, path, at_once)


def scatter(part_bytes: list, root: int = 0) -> Cost:
    """alpha + (n - root's part) beta, as all parts leave at once.  Literature: (p-1) alpha."""
    p, out = len(part_bytes), sum(part_bytes) - part_bytes[root]
    sent = [out if rank == root else 0 for rank in range(p)]
    messages = [(p - 1) * (rank == root) for rank in range(p)]
    return Cost(p - 1, sent, messages, out, at_once=max(0, p - 2))


def gather(part_bytes: list, root: int = 0) -> Cost:
    """alpha + (n - root's part) beta, as all parts come at once.  Literature: (p-1) alpha."""
    p = len(part_bytes)
    sent = [0 if rank == root else part_bytes[rank] for rank in range(p)]
    messages = [int(rank != root) for rank in range(p)]
    return Cost(p - 1, sent, messages, sum(sent), at_once=max(0, p - 2))


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
    """p alpha + 2(p-1) n beta + (p-1) n gamma, by way of rank 0, which hears all others at once.
    Literature: 2(p-1) alpha."""
    messages = [p - 1] + [1] * (p - 1)
    sent, path = [nbytes * m for m in messages], 2 * (p - 1) * nbytes
    return Cost(2 * (p - 1), sent, messages, path, (p - 1) * nbytes, max(0, p - 2))


def tree_all_reduce(p: int, nbytes: int) -> Cost:
    """2 ceil(lg p)(alpha + n beta) + ceil(lg p) n gamma: up a tree and down again; see `reduce`."""
    return reduce(p, nbytes).then(broadcast(p, nbytes))


def recursive_doubling_all_reduce(p: int, nbytes: int) -> Cost:
    """lg p (alpha + n beta + n gamma) for p = 2^k.

    Else (floor(lg p) + 2) alpha + (floor(lg p) + 3) n beta + (floor(lg p) + 1) n gamma: a rank
    takes in a neighbour's tensor while its next partner is sending already, over the same link.
    Of long messages (n beta > alpha) more than one meet there, and it takes longer still.
    """
    plan = [meetings(p, rank) for rank in range(p)]
    messages = [sum(meeting.gives for meeting in mine) for mine in plan]
    longest = max(plan, key=len)
    path = (len(longest) + (p & (p - 1) > 0)) * nbytes
    combined = sum(meeting.add for meeting in longest) * nbytes
    return Cost(len(longest), [nbytes * m for m in messages], messages, path, combined)


def ring_all_reduce(p: int, elements: int, element_bytes: int) -> Cost:
    """2(p-1) alpha + 2n(p-1)/p beta + n(p-1)/p gamma.

    Messages: if no chunk is longer than a segment.
    """
    sizes = chunk_bytes(p, elements, element_bytes)
    sent = [2 * sum(sizes) - sizes[(r + 1) % p] - sizes[(r + 2) % p] for r in range(p)]
    path = (p - 1) * max(sizes)
    return Cost(2 * (p - 1), sent, [2 * (p - 1)] * p, 2 * path, path)


def halving_doubling_all_reduce(p: int, elements: int, element_bytes: int) -> Cost:
    """2 ceil(lg p) alpha + 2n(p-1)/p beta + n(p-1)/p gamma, for any p."""
    sizes = chunk_bytes(p, elements, element_bytes)
    sent, path = [0] * p, 0
    for have, keep in halvings(p):
        kept = [sum(sizes[(rank + i) % p] for i in range(have - keep)) for rank in range(p)]
        sent = [sent[rank] + kept[(rank + keep) % p] + kept[rank] for rank in range(p)]
        path += max(kept)
    steps = 2 * len(halvings(p))
    return Cost(steps, sent, [steps] * p, 2 * path, path)


def hierarchical_all_reduce(nodes, elements: int, element_bytes: int) -> Cost:
    """2(g-1 + N-1) alpha + 2n((g-1)/g + (N-1)/(gN)) beta + half of that gamma: N nodes of g ranks.

    `nodes`: that of each rank.  The sum of `inside_nodes` and `across_nodes`, by messages; where
    ranks share memory, only what goes across is sent (`inside_by_memory`).  With more ranks on
    some nodes than on others it takes a little longer: those of the small ones come too early.
    """
    sizes = nodes, elements, element_bytes
    return inside_nodes(*sizes).then(across_nodes(*sizes))


def inside_nodes(nodes, elements: int, element_bytes: int) -> Cost:
    """2(G-1)(alpha + n/g beta) + (G-1) n/g gamma, where the largest node has G ranks and the
    smallest g: half of it before what goes across, half after it."""
    everywhere = rings(nodes)
    chunks = chunk_bytes(min(map(len, everywhere)), elements, element_bytes)
    sent, messages = [0] * len(nodes), [0] * len(nodes)
    for ring in everywhere:
        parts = chunks + [0] * (len(ring) - len(chunks))
        for me, rank in enumerate(ring):
            kept = parts[(me + 1) % len(ring)] + parts[(me + 2) % len(ring)]
            messages[rank], most = 2 * (len(ring) - 1), len(ring) > 1
            sent[rank] = most * (2 * sum(parts) - kept)
    steps = max(messages)
    return Cost(steps, sent, messages, steps * chunks[0], steps * chunks[0] / 2)


def inside_by_memory(nodes, elements: int, element_bytes: int) -> Cost:
    """The same through memory that the ranks of a node share: nothing is sent.

    Steps are meetings, two for every piece that the memory holds and one at the end; path_bytes
    are copied: what others own in and out, and what a rank owns itself, n/g, once.
    """
    everywhere, nbytes = rings(nodes), elements * element_bytes
    widest, count = max(map(len, everywhere)), min(map(len, everywhere))
    nothing, pieces = [0] * len(nodes), math.ceil(2 * nbytes / NODE_MEMORY_BYTES)
    if widest == 1 or not elements:
        return Cost(0, nothing, nothing, 0)
    copied = nbytes * (2 if widest > count else (2 * count - 1) / count)
    combined = nbytes * (widest - 1) / count
    return Cost(2 * pieces + 1, nothing, nothing, copied, combined)


def across_nodes(nodes, elements: int, element_bytes: int) -> Cost:
    """2(N-1) alpha + 2n/g (N-1)/N beta + n/g (N-1)/N gamma, of N nodes, the smallest of g ranks."""
    everywhere = rings(nodes)
    count, p = min(map(len, everywhere)), len(everywhere)
    sent, messages, path = [0] * len(nodes), [0] * len(nodes), 0
    for chunk, nbytes in enumerate(chunk_bytes(count, elements, element_bytes)):
        one = ring_all_reduce(p, nbytes // element_bytes, element_bytes)
        path = max(path, one.path_bytes)
        for number, ring in enumerate(everywhere):
            sent[owner(ring, chunk)] = one.sent_bytes[number]
            messages[owner(ring, chunk)] = one.steps
    return Cost(2 * (p - 1), sent, messages, path, path / 2)


def chunk_bytes(p: int, elements: int, element_bytes: int) -> list[int]:
    """A tensor cut in p chunks: the first (elements mod p) are one element longer."""
    return [element_bytes * (elements // p + (c < elements % p)) for c in range(p)]


def _children(rank: int, p: int) -> int:
    """How many ranks a rank of a binomial tree with root 0 sends to."""
    return sum(rank < 2**k and rank + 2**k < p for k in range(levels(p)))


# Measured: seconds of messages, and what they say of a link


class Fit(NamedTuple):
    """alpha and beta of measured messages, and between what bounds 90 % of repetitions would
    find them."""

    alpha_s: float
    beta_s_per_byte: float
    alpha_range_s: tuple
    beta_range_s_per_byte: tuple


def fit(samples, *, draws: int = 200, seed: int = 0) -> Fit:
    """The line alpha + n beta through `samples` [(bytes, seconds), ...], several of each length.

    Of all lines through two medians, the one with the least relative distance to all of them: a
    few wild samples, or lengths, do not move it.  Of (bytes, seconds) of combining, beta is gamma.
    Raises ValueError if all are of one length.
    """
    by_length, generator = {}, random.Random(seed)
    for nbytes, seconds in samples:
        by_length.setdefault(nbytes, []).append(seconds)
    if len(by_length) < 2:
        raise ValueError(f"a line needs messages of two lengths at least, not of {[*by_length]}")
    again = [_line({n: generator.choices(times, k=len(times)) for n, times in by_length.items()})
             for _ in range(draws)]  # fmt: skip
    return Fit(*_line(by_length), *[_middle(values) for values in zip(*again)])


def _line(by_length) -> tuple:
    points = [(n, statistics.median(times)) for n, times in sorted(by_length.items())]
    lines = []
    for number, (short, soon) in enumerate(points):
        for long, late in points[number + 1 :]:
            beta = max(0.0, (late - soon) / (long - short))
            lines.append((max(0.0, soon - short * beta), beta))
    return min(lines, key=lambda ab: sum(abs(ab[0] + n * ab[1] - t) / t for n, t in points))


def _middle(values, share=0.9) -> tuple:
    values, cut = sorted(values), round(len(values) * (1 - share) / 2)
    return values[cut], values[-1 - cut]


BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1,
    "reduce": lambda p: 1,
}


def algbw(nbytes: int, seconds: float) -> float:
    """Bytes a second as the caller sees it; nbytes of reduce_scatter and all_gather: all parts."""
    return nbytes / seconds


def busbw(collective: str, p: int, nbytes: int, seconds: float) -> float:
    """Bytes a second that every link must carry at least: comparable between numbers of ranks and
    with the link's own.  Source: NVIDIA's nccl-tests, doc/PERFORMANCE.md."""
    return algbw(nbytes, seconds) * BUS_FACTORS[collective](p)
