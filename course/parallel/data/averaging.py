"""How one bucket becomes the mean over ranks: in one message, or the weights before the values."""

from collections.abc import Callable
from typing import NamedTuple

from course.collectives import all_reduce


class Averaging(NamedTuple):
    """The gradients of all ranks by their weights: the `mean`, or else the plain sum.

    `algorithm` is that of all_reduce; `hook(comm, bucket)`, if there is one, takes its place: it
    finds each rank's shares of the result in the bucket's values, and leaves their sum, or an
    estimate of it.
    """

    mean: bool = True
    algorithm: str = "ring"
    hook: Callable | None = None

    def by_shares(self, bucket) -> bool:
        """Whether to sum the weights before the values.  A hook needs it, since what it keeps must
        not depend on this step's weights; half types do, since weighted values could overflow."""
        return self.hook is not None or bucket.flat is bucket.values

    def factor(self, bucket, weight) -> float:
        """What gradients are multiplied by on their way into the bucket."""
        return 1.0 if self.by_shares(bucket) or not weight else weight

    def __call__(self, comm, bucket):
        """Reduce a bucket that is finalized.  Cost: an all-reduce of it; by shares, one of its tail
        and then one of its values, or what the hook sends."""
        if not self.by_shares(bucket):
            all_reduce(comm, bucket.flat, algorithm=self.algorithm)
            return bucket.read_totals()
        if self.hook and not bucket.finite:
            bucket.tail[-1] = 1.0
        all_reduce(comm, bucket.tail, algorithm=self.algorithm)
        bucket.read_totals()
        if self.mean:
            bucket.values.mul_(bucket.weight / (bucket.counts[0] or 1.0))
        if self.hook is None or bucket.counts[-1]:  # what is not finite would spoil its memory
            all_reduce(comm, bucket.values, algorithm=self.algorithm)
        elif bucket.in_use:
            self.hook(comm, bucket)

    def divisor(self, bucket) -> float:
        """What the values are to be divided by in the end."""
        return 1.0 if self.by_shares(bucket) or not self.mean else bucket.counts[0] or 1.0
