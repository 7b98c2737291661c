"""What each collective should cost, by formula: steps, bytes and messages a rank, seconds.

The model: a message of N bytes takes alpha + N beta seconds, combining N bytes N gamma; a rank
sends one message and receives one at a time.  p ranks; lg is the logarithm to base 2.  What each
rank sends is counted in the plans that run; the longest way through them is a formula.

Seconds are those of an imagined cluster of one switch (`simulated`), where messages that leave or
reach a rank at the same time share its link, but pay alpha side by side: `overlapped_alphas` says
how many do.  The literature counts one alpha a step: `cost._replace(overlapped_alphas=0)`.
Source: Thakur, Rabenseifner & Gropp 2005; Patarasuk & Yuan 2009 (ring).
"""

import math
import random
import statistics
from typing import NamedTuple

from course.collectives.basic import pairwise_steps
from course.collectives.doubling import doubling_schedule, halvings
from course.collectives.hierarchical import HEADER_BYTES, owner, ranks_by_node
from course.collectives.ring import (
    all_gather_steps,
    chunk_lengths,
    reduce_scatter_steps,
    ring_steps,
)
from course.collectives.tree import binomial_tree, flat_tree
from course.comm.transport import NODE_MEMORY_BYTES


class Cost(NamedTuple):
    """Of one call: `steps` one after another, what each rank sends, and the bytes that are sent
    and combined one after another on the longest way through it."""

    steps: int
    sent_bytes: list
    sent_messages: list
    path_bytes: float
    combined_bytes: float = 0.0
    overlapped_alphas: int = 0

    def seconds(self, alpha: float, beta: float, gamma: float = 0.0) -> float:
        """alpha seconds a message, beta a byte sent, gamma a byte combined."""
        alphas = self.steps - self.overlapped_alphas
        return alphas * alpha + self.path_bytes * beta + self.combined_bytes * gamma

    def then(self, other: "Cost") -> "Cost":
        """The cost of both calls, one after the other."""
        return Cost(
            self.steps + other.steps,
            [a + b for a, b in zip(self.sent_bytes, other.sent_bytes)],
            [a + b for a, b in zip(self.sent_messages, other.sent_messages)],
            self.path_bytes + other.path_bytes,
            self.combined_bytes + other.combined_bytes,
            self.overlapped_alphas + other.overlapped_alphas,
        )


def sent(p: int, messages) -> tuple[list, list]:
    """Bytes and messages that each of p ranks sends, of `messages` [(source, bytes), ...]."""
    sent_bytes, sent_messages = [0] * p, [0] * p
    for src, nbytes in messages:
        sent_bytes[src] += nbytes
        sent_messages[src] += 1
    return sent_bytes, sent_messages


def levels(p: int) -> int:
    """ceil(lg p): the rounds of a binomial tree."""
    return math.ceil(math.log2(p))


def broadcast(p: int, nbytes: int, root: int = 0) -> Cost:
    """ceil(lg p)(alpha + N beta), down a binomial tree."""
    tree = binomial_tree(p, root)
    down = sent(p, ((src, nbytes) for pairs in tree for src, _ in pairs))
    return Cost(len(tree), *down, len(tree) * nbytes)


def reduce(p: int, nbytes: int, root: int = 0) -> Cost:
    """ceil(lg p)(alpha + N beta + N gamma), up a binomial tree.

    At p != 2^k one alpha less, since a rank without children need not wait for its turn; at
    p = 2^k + 1 the tree is even faster than that if messages are long.
    """
    tree = binomial_tree(p, root)
    up = sent(p, ((dst, nbytes) for pairs in tree for _, dst in pairs))
    path, overlapped = len(tree) * nbytes, len(tree) - (p.bit_length() - 1)
    return Cost(len(tree), *up, path, path, overlapped)


def scatter(part_bytes: list, root: int = 0) -> Cost:
    """alpha + (N - root's part) beta, as all parts leave at once.  Literature: (p-1) alpha."""
    p = len(part_bytes)
    down = sent(p, ((root, part_bytes[dst]) for [(_, dst)] in flat_tree(p, root)))
    return Cost(p - 1, *down, sum(down[0]), overlapped_alphas=max(0, p - 2))


def gather(part_bytes: list, root: int = 0) -> Cost:
    """alpha + (N - root's part) beta, as all parts come at once.  Literature: (p-1) alpha."""
    p = len(part_bytes)
    up = sent(p, ((src, part_bytes[src]) for [(_, src)] in flat_tree(p, root)))
    return Cost(p - 1, *up, sum(up[0]), overlapped_alphas=max(0, p - 2))


def all_gather(part_bytes: list) -> Cost:
    """(p-1) alpha + N(p-1)/p beta for equal parts, round the ring."""
    p = len(part_bytes)
    passed = sent(p, ((r, part_bytes[s.send]) for r in range(p) for s in all_gather_steps(p, r)))
    return Cost(p - 1, *passed, (p - 1) * max(part_bytes))


def reduce_scatter(part_bytes: list) -> Cost:
    """(p-1) alpha + N(p-1)/p (beta + gamma) for equal parts, round the ring."""
    p = len(part_bytes)
    added = sent(p, ((r, part_bytes[s.send]) for r in range(p) for s in reduce_scatter_steps(p, r)))
    path = (p - 1) * max(part_bytes)
    return Cost(p - 1, *added, path, path)


def all_to_all(part_bytes: list) -> Cost:
    """(p-1)(alpha + N/p beta) for equal parts; part_bytes[src][dst]."""
    p = len(part_bytes)
    rows = [[row[step.send] for step in pairwise_steps(p, src)]
            for src, row in enumerate(part_bytes)]  # fmt: skip
    exchanged = sent(p, ((src, nbytes) for src, row in enumerate(rows) for nbytes in row))
    return Cost(p - 1, *exchanged, sum(map(max, zip(*rows))))


def flat_all_reduce(p: int, nbytes: int) -> Cost:
    """p alpha + 2(p-1) N beta + (p-1) N gamma, by way of rank 0, which hears all others at once.
    Literature: 2(p-1) alpha."""
    up_and_down = sent(p, ((rank, nbytes) for [pair] in flat_tree(p) for rank in pair))
    path = 2 * (p - 1) * nbytes
    return Cost(2 * (p - 1), *up_and_down, path, path / 2, max(0, p - 2))


def tree_all_reduce(p: int, nbytes: int) -> Cost:
    """2 ceil(lg p)(alpha + N beta) + ceil(lg p) N gamma: up a tree and down again; see `reduce`."""
    return reduce(p, nbytes).then(broadcast(p, nbytes))


def recursive_doubling_all_reduce(p: int, nbytes: int) -> Cost:
    """lg p (alpha + N beta + N gamma) for p = 2^k.

    Else (floor(lg p) + 2) alpha + (floor(lg p) + 3) N beta + (floor(lg p) + 1) N gamma: a rank
    takes in a neighbour's tensor while its next partner is sending already, over the same link.
    Of long messages (N beta > alpha) more than one meet there, and it takes longer still.
    """
    plans = [doubling_schedule(p, rank) for rank in range(p)]
    exchanged = sent(p, ((r, nbytes) for r, plan in enumerate(plans) for x in plan if x.sends))
    longest = max(plans, key=len)
    path = (len(longest) + (p & (p - 1) > 0)) * nbytes
    combined = sum(exchange.add for exchange in longest) * nbytes
    return Cost(len(longest), *exchanged, path, combined)


def ring_all_reduce(p: int, elements: int, element_bytes: int) -> Cost:
    """2(p-1) alpha + 2N(p-1)/p beta + N(p-1)/p gamma, a chunk in one message.

    What is cut into more takes less time than the formula says.  Where p does not divide the
    elements, the imagined cluster takes longer, by 2 % for chunks of some sixty elements, twice as
    long for chunks of one or two: a message begins while the link still carries the end of a longer
    one.
    """
    chunks = _chunk_bytes(p, elements, element_bytes)
    passed = sent(p, ((r, chunks[s.send]) for r in range(p) for s in ring_steps(p, r)))
    path = (p - 1) * chunks[0]
    return Cost(2 * (p - 1), *passed, 2 * path, path)


def halving_doubling_all_reduce(p: int, elements: int, element_bytes: int) -> Cost:
    """2 ceil(lg p) alpha + 2N(p-1)/p beta + N(p-1)/p gamma, for any p."""
    sizes, messages, path = _chunk_bytes(p, elements, element_bytes), [], 0
    for have, keep in halvings(p):
        kept = [sum(sizes[(rank + i) % p] for i in range(have - keep)) for rank in range(p)]
        messages += [((rank - keep) % p, kept[rank]) for rank in range(p)]  # and back again:
        messages += enumerate(kept)
        path += max(kept)
    return Cost(2 * len(halvings(p)), *sent(p, messages), 2 * path, path)


def all_reduces(p: int, elements: int, element_bytes: int) -> dict:
    """{algorithm: its cost} on p ranks, of all that do not ask for nodes."""
    nbytes, sizes = elements * element_bytes, (elements, element_bytes)
    return {
        "flat": flat_all_reduce(p, nbytes),
        "tree": tree_all_reduce(p, nbytes),
        "recursive_doubling": recursive_doubling_all_reduce(p, nbytes),
        "ring": ring_all_reduce(p, *sizes),
        "halving_doubling": halving_doubling_all_reduce(p, *sizes),
    }


def hierarchical_all_reduce(nodes, elements: int, element_bytes: int) -> Cost:
    """2(g-1 + M-1) alpha + 2N((g-1)/g + (M-1)/(gM)) beta + half of that gamma: M nodes of g ranks.

    `nodes`: that of each rank.  The sum of `inside_nodes` and `across_nodes`, by messages; where
    ranks share memory, only what goes across is sent (`inside_by_memory`).  With more ranks on
    some nodes than on others it takes a little longer: those of the small ones come too early.
    """
    sizes = nodes, elements, element_bytes
    return inside_nodes(*sizes).then(across_nodes(*sizes))


def inside_nodes(nodes, elements: int, element_bytes: int) -> Cost:
    """2(G-1)(alpha + N/g beta) + (G-1) N/g gamma, where the largest node has G ranks and the
    smallest g: half of it before what goes across, half after it."""
    rings, messages = ranks_by_node(nodes), []
    chunks = _chunk_bytes(min(map(len, rings)), elements, element_bytes)
    for ring in rings:
        parts = chunks + [0] * (len(ring) - len(chunks))
        for me, rank in enumerate(ring):
            messages += [(rank, parts[step.send]) for step in ring_steps(len(ring), me)]
    steps = 2 * (max(map(len, rings)) - 1)
    return Cost(steps, *sent(len(nodes), messages), steps * chunks[0], steps * chunks[0] / 2)


def inside_by_memory(nodes, elements: int, element_bytes: int) -> Cost:
    """The same through memory that the ranks of a node share: nothing is sent.

    Steps are barriers, two for every piece that the memory holds and one at the end; path_bytes
    are copied: what others own in and out, and what a rank owns itself, N/g, once.
    """
    rings, nbytes = ranks_by_node(nodes), elements * element_bytes
    widest, count = max(map(len, rings)), min(map(len, rings))
    nothing, half = [0] * len(nodes), (NODE_MEMORY_BYTES - HEADER_BYTES) // 2
    if widest == 1 or not elements:
        return Cost(0, nothing, nothing, 0)
    copied = nbytes * (2 if widest > count else (2 * count - 1) / count)
    combined = nbytes * (widest - 1) / count
    return Cost(2 * math.ceil(nbytes / half) + 1, nothing, nothing, copied, combined)


def across_nodes(nodes, elements: int, element_bytes: int) -> Cost:
    """2(M-1) alpha + 2N/g (M-1)/M beta + N/g (M-1)/M gamma, of M nodes, the smallest of g ranks."""
    rings = ranks_by_node(nodes)
    count, p = min(map(len, rings)), len(rings)
    sent_bytes, sent_messages, path = [0] * len(nodes), [0] * len(nodes), 0.0
    for chunk, length in enumerate(chunk_lengths(elements, count)):
        one = ring_all_reduce(p, length, element_bytes)
        path = max(path, one.path_bytes)
        for number, ring in enumerate(rings):
            sent_bytes[owner(ring, chunk)] = one.sent_bytes[number]
            sent_messages[owner(ring, chunk)] = one.sent_messages[number]
    return Cost(2 * (p - 1), sent_bytes, sent_messages, path, path / 2)


def _chunk_bytes(p: int, elements: int, element_bytes: int) -> list[int]:
    return [element_bytes * length for length in chunk_lengths(elements, p)]


# Measured: seconds of messages, and what they say of a link


class Fit(NamedTuple):
    """alpha and beta of measured messages, and between what bounds 90 % of repetitions would
    find them."""

    alpha_s: float
    beta_s_per_byte: float
    alpha_range_s: tuple
    beta_range_s_per_byte: tuple


def fit(samples, *, draws: int = 200, seed: int = 0) -> Fit:
    """The line alpha + N beta through `samples` [(bytes, seconds), ...], several of each length.

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
    return Fit(*_line(by_length), *[_central_interval(values) for values in zip(*again)])


def _line(by_length) -> tuple:
    points = [(n, statistics.median(times)) for n, times in sorted(by_length.items())]
    lines = []
    for number, (short, soon) in enumerate(points):
        for long, late in points[number + 1 :]:
            beta = max(0.0, (late - soon) / (long - short))
            lines.append((max(0.0, soon - short * beta), beta))
    return min(lines, key=lambda ab: sum(abs(ab[0] + n * ab[1] - t) / t for n, t in points))


def _central_interval(values, share=0.9) -> tuple:
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
