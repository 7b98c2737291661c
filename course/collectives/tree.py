"""Trees: who passes a tensor on to whom, round by round, from one rank to all or from all to one.

A plan is rounds of (from, to); the same plan is drawn, reckoned with, and run.
"""

import functools
from collections import defaultdict

import torch


class Tree(list):
    """Rounds, in each of which pairs (from, to) of ranks."""

    @functools.cached_property
    def by_rank(self) -> dict:
        """{rank: [(round, from, to), ...]}: what each does, without a look at all the others."""
        own = defaultdict(list)
        for number, pairs in enumerate(self):
            for src, dst in pairs:
                own[src].append((number, src, dst))
                own[dst].append((number, src, dst))
        return own


@functools.lru_cache(maxsize=64)
def flat_tree(p: int, root: int = 0) -> Tree:
    """Rounds of one pair (from, to): the root serves one rank after another.

    p = 4, root 0:   0→1 | 0→2 | 0→3
    """
    return Tree([(root, rank)] for rank in range(p) if rank != root)


@functools.lru_cache(maxsize=64)
def binomial_tree(p: int, root: int = 0) -> Tree:
    """Rounds of (from, to): in each, every rank that has the data passes it on to one that has not.

    p = 8, root 0:   0→1 | 0→2 1→3 | 0→4 1→5 2→6 3→7
    """
    rounds, have = Tree(), 1
    while have < p:
        pairs = [(i, i + have) for i in range(min(have, p - have))]
        rounds.append([((a + root) % p, (b + root) % p) for a, b in pairs])
        have *= 2
    return rounds


def pass_down_tree(comm, tree, x):
    """Copy `x` [any shape] of the tree's root to all ranks, in place."""
    for number, src, dst in tree.by_rank[comm.rank]:
        if comm.rank == src:
            comm.send(x, dst, number)
        else:
            comm.recv(x, src, number)


def reduce_up_tree(comm, tree, mine, reduction):
    """Combine `mine` [n] of all ranks into the root's, the last round first; all change."""
    theirs = torch.empty_like(mine)
    for number, dst, src in reversed(tree.by_rank[comm.rank]):
        if comm.rank == src:
            comm.send(mine, dst, number)
        else:
            comm.recv(theirs, src, number)
            reduction.combine(mine, theirs)


def by_flat(comm, flat, reduction):
    """All-reduce of `flat` [n] by way of rank 0, which hears and answers one rank after another."""
    tree = flat_tree(comm.size)
    _up_and_down(comm, flat, reduction, Tree(tree[::-1]), tree)  # it adds in the order of ranks


def by_tree(comm, flat, reduction):
    """All-reduce of `flat` [n] up a binomial tree to rank 0, and down again."""
    tree = binomial_tree(comm.size)
    _up_and_down(comm, flat, reduction, tree, tree)


def _up_and_down(comm, flat, reduction, up, down):
    reduce_up_tree(comm, up, reduction.before(flat, comm.size), reduction)
    if comm.rank == 0:
        reduction.after(flat, comm.size)
    pass_down_tree(comm, down, flat)
