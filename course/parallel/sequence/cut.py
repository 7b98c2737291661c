"""Which positions of a sequence each rank has: a plan, as data.

positions      0   1   2   3   4   5   6   7
contiguous     r0  r0  r1  r1  r2  r2  r3  r3     rank 3's queries see all, rank 0's two keys
zigzag         r0  r1  r2  r3  r3  r2  r1  r0     all ranks have as many pairs: each has an early
                                                  and a late piece
"""

from typing import NamedTuple

import torch

from course.parallel.array.layout import even_cuts


class SequenceCut(NamedTuple):
    """Rank r has the positions of `parts[r]`, intervals (start, stop) in the order in which it
    holds them; all together they are 0 to `length`, each once."""

    parts: tuple

    @property
    def length(self) -> int:
        """How many positions there are."""
        return sum(map(self.count, range(len(self.parts))))

    def count(self, rank: int) -> int:
        """How many of them `rank` has."""
        return sum(stop - start for start, stop in self.parts[rank])

    def positions(self, rank: int) -> torch.Tensor:
        """Those of `rank` [count]: what an embedding of positions is given."""
        pieces = [torch.arange(*interval) for interval in self.parts[rank]]
        return torch.cat(pieces) if pieces else torch.arange(0)

    def part(self, x, rank: int, axis: int = 0) -> torch.Tensor:
        """What `rank` has of a whole `x` [length along `axis`].  Nothing is sent.

        Raises ValueError for another length.
        """
        if x.shape[axis] != self.length:
            raise ValueError(f"rank {rank}: {self.length} positions are cut: not {x.shape[axis]}")
        return x.index_select(axis, self.positions(rank).to(x.device))

    def pairs(self, rank: int) -> int:
        """How many pairs of a query of `rank` and a key that is not behind it there are: the work
        of causal attention."""
        return sum(stop * (stop + 1) // 2 - start * (start + 1) // 2
                   for start, stop in self.parts[rank])  # fmt: skip

    def check(self, comm):
        """Raises ValueError where it is not a cut of a sequence over the ranks of `comm`."""
        if len(self.parts) != comm.size:
            raise ValueError(f"rank {comm.rank}: the sequence is cut for {len(self.parts)} ranks, "
                             f"and there are {comm.size}")  # fmt: skip
        at = 0
        for start, stop in sorted(interval for part in self.parts for interval in part):
            if start != at or stop < start:
                raise ValueError(f"rank {comm.rank}: each position belongs to one rank: after "
                                 f"{at} comes the interval {start} to {stop}")  # fmt: skip
            at = stop


def contiguous(length: int, ranks: int) -> SequenceCut:
    """One interval a rank, in their order; they differ by one position at most."""
    cuts = even_cuts(length, ranks)
    return SequenceCut(tuple(((cuts[r], cuts[r + 1]),) for r in range(ranks)))


def zigzag(length: int, ranks: int) -> SequenceCut:
    """Of 2 x `ranks` intervals each rank has one from the front and one from the back.

    Causal attention then has the same work on all ranks.  Source: Brandon et al. 2023, «Striped
    Attention» (the reason); the layout is that of Llama 3's context parallelism.
    """
    cuts = even_cuts(length, 2 * ranks)
    last = 2 * ranks - 1
    return SequenceCut(tuple(
        ((cuts[r], cuts[r + 1]), (cuts[last - r], cuts[last - r + 1])) for r in range(ranks)
    ))  # fmt: skip
