"""Dropout that leaves out the same numbers on any number of ranks.

The rule: all ranks draw the mask of the whole, from torch's generator, and each takes its part of
it.  Seeded alike, they draw what `nn.Dropout` draws on one process; what all have alike stays
alike; checkpoints, which put the generator back, draw the same again.  Drawing takes as long on
every rank as on one process.
"""

from torch.nn import functional

from course.parallel.array.dropout import check_same_mask
from course.parallel.tensor.cut import OnRanks, lengths
from course.parallel.tensor.sequence import checked_rows


class Dropout(OnRanks):
    """`nn.Dropout(p)` of activations that the ranks of `comm` have alike, or a part each.

    Ranks compare their masks: the first time, and always in checked mode.
    """

    def __init__(self, comm, p: float = 0.5):
        super().__init__(comm)
        if not 0 <= p <= 1:
            raise ValueError(f"rank {comm.rank}: a probability lies from 0 to 1, not {p}")
        self.p, self.agreed = p, False

    def forward(self, x, cuts=None, axis: int = -2):
        """x [any shape], the same on all ranks, or the part of this rank, cut at `cuts` along
        `axis`, with some numbers 0 and all others larger; as it is in evaluation.

        Cost: nothing.  Raises ValueError where the generators of the ranks differ, and for rows
        that are not those of the cuts.
        """
        if not (self.training and self.p):
            return x
        shape = [*x.shape]
        if cuts is not None:
            cuts, axis = checked_rows(self.comm, x, cuts, axis, part=True)
            shape[axis] = cuts[-1]
        factors = functional.dropout(x.new_ones(shape), self.p)
        self._check_equal(factors)
        if cuts is not None:
            rank = self.comm.rank
            factors = factors.narrow(axis, cuts[rank], lengths(cuts)[rank])
        return x * factors

    def _check_equal(self, factors):
        if not self.agreed or self.comm.checked:
            check_same_mask(self.comm, factors)
            self.agreed = True
