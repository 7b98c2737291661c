"""All-reduce in a logarithmic number of steps: whole tensors with partners ever further away, or
halves, quarters, eighths, and back."""

import functools
from typing import NamedTuple

import torch

from course.collectives.ring import chunk_start


class Exchange(NamedTuple):
    """One step of one rank: it sends its tensor to `peer`, receives the peer's, or both; what it
    receives is added to its own or replaces it."""

    peer: int
    sends: bool
    receives: bool
    add: bool


def doubling_schedule(p: int, rank: int) -> list[Exchange]:
    """The partners of `rank` in recursive doubling, at distance 1, 2, 4, ...

    Of p = 2^k + e ranks the first e with even numbers send their tensors to their right neighbours
    before the others begin, and receive the result from them at the end.

    p = 6:   0→1 2→3 | 1↔3 4↔5 | 1↔4 3↔5 | 0←1 2←3
    """
    few = 1 << (p.bit_length() - 1)
    extra = p - few
    folded = rank < 2 * extra
    if folded and rank % 2 == 0:
        return [Exchange(rank + 1, True, False, False), Exchange(rank + 1, False, True, False)]
    number = rank // 2 if folded else rank - extra
    partners = [number ^ (1 << k) for k in range(few.bit_length() - 1)]
    among = [Exchange(2 * i + 1 if i < extra else i + extra, True, True, True) for i in partners]
    if not folded:
        return among
    return [Exchange(rank - 1, False, True, True), *among, Exchange(rank - 1, True, False, False)]


def by_recursive_doubling(comm, flat, reduction):
    """All-reduce of whole tensors: each exchange doubles how many ranks' tensors are in the sum.

    Both partners combine the sum of the lower rank with that of the higher one, in this order: so
    all ranks get the same bits.
    """
    mine, theirs = reduction.before(flat, comm.size), torch.empty_like(flat)
    for peer, sends, receives, add in doubling_schedule(comm.size, comm.rank):
        if sends and receives:
            comm.exchange(mine, peer, theirs, peer)
        elif sends:
            comm.send(mine, peer)
        else:
            comm.recv(theirs, peer)
        if receives and (not add or peer < comm.rank):
            mine, theirs = theirs, mine
        if receives and add:
            reduction.combine(mine, theirs)
    reduction.after(mine, comm.size)
    if mine is not flat:
        flat.copy_(mine)


class Halving(NamedTuple):
    """A step in which each rank keeps the first `keep` of its `have` chunks, counted from its own
    chunk on, and sends the rest to the rank whose number is larger by `keep`."""

    have: int
    keep: int


def halvings(p: int) -> list[Halving]:
    """The steps of recursive halving, for any p: each keeps half of the chunks, rounded up.

    p = 8:   8 → 4 → 2 → 1          p = 5:   5 → 3 → 2 → 1
    """
    steps, have = [], p
    while have > 1:
        steps.append(Halving(have, (have + 1) // 2))
        have = steps[-1].keep
    return steps


def by_halving_doubling(comm, flat, reduction):
    """All-reduce by halving until each rank holds one finished chunk, and the same way back.

    Source: Rabenseifner 2004; for any number of ranks: Träff 2024 (arXiv:2410.14234).
    """
    p, me = comm.size, comm.rank
    length = reduction.before(flat, p).numel()
    start = chunk_start(length, p, me)
    mine = torch.cat([flat[start:], flat[:start]]) if me else flat
    end = functools.partial(_reach, length, p, me)
    steps = [(keep, mine[: end(have - keep)], mine[end(keep) : end(have)])
             for have, keep in halvings(p)]  # fmt: skip
    scratch = mine.new_empty(end(p // 2))
    for keep, kept, rest in steps:
        landing = scratch[: kept.numel()]
        comm.exchange(rest, (me + keep) % p, landing, (me - keep) % p)
        reduction.combine(kept, landing)
    reduction.after(mine[: end(1)], p)
    for keep, kept, rest in reversed(steps):
        comm.exchange(kept, (me - keep) % p, rest, (me + keep) % p)
    if me:
        flat[start:], flat[:start] = mine[: length - start], mine[length - start :]


def _reach(length, p, me, chunks) -> int:
    """How many elements the first `chunks` of p have, counted round from number `me` on."""
    laps, last = divmod(me + chunks, p)
    return laps * length + chunk_start(length, p, last) - chunk_start(length, p, me)
