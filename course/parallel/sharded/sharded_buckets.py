"""Buckets whose mean gradient is wanted in pieces: each rank is given its shard's, and no more."""

import math

from course.parallel.data.buckets import Bucket, Layout
from course.parallel.sharded.pieces import add_up


class ShardedBucket(Bucket):
    """The gradients of all parameters of `flat`.

    What is put in is taken away from its parameter.  In stage 1 its memory stays, and its own piece
    is the shards' gradient; else the memory is there from the first gradient to the sum.
    """

    def __init__(self, flat):
        super().__init__(flat.views)
        self.shards, self.fine, self.fellows = flat, {}, lambda: [self]
        if flat.stage > 1:
            self.release()

    def fill(self, parameter):
        """Move the gradient of `parameter` to its place."""
        self._make_room()
        super().fill(parameter)
        parameter.grad = None

    def finalize(self, factor, weight, *counts):
        """Make it ready to be summed."""
        self._make_room()
        super().finalize(factor, weight, *counts)

    def reduced(self):
        """The rank's own piece is the mean: of the rest, nothing is wanted any more."""
        own = self.pieces[self.shards.rank]
        self.shards.gradient = own if self.shards.stage == 1 else own.clone()
        if self.shards.stage > 1:
            self.release()

    @property
    def pieces(self):
        """The values, cut as the parameters are."""
        return self.values.split([len(piece) for piece in self.shards.pieces])

    @property
    def finite(self) -> bool:
        """Whether all of this rank's values are; if not, which parameters' are is noted."""
        fine = super().finite
        self.fine = {} if fine else {p: _finite(self.view(p)) for p in self.parameters}
        return fine

    def not_finite(self) -> list:
        """The parameters in use whose values are not finite on some rank."""
        return [p for p in self.in_use if not _finite(self.view(p))] if self.counts[-1] else []

    def own_is_finite(self, parameter) -> bool:
        """Whether this rank's part of the gradient of `parameter` was finite."""
        return self.fine.get(parameter, True)

    def copy_out(self, divisor):
        """Give the shards of the parameters that any rank used their gradients; what is not finite
        on any rank is not a number on all: a GradScaler skips a step by what its own rank has."""
        if self.shards.gradient is None:
            self.reduced()
        if any(bucket.counts[-1] for bucket in self.fellows()):
            self.shards.gradient.fill_(math.nan)
        self.shards.hand_out(self.in_use)
        self.shards.gradient = None

    def _make_room(self):
        if self.filled:
            return
        if (
            self.shards.stage == 1
        ):  # what shards still have from an earlier backward is added to, not replaced
            for shard in self.shards.shards.values():
                if shard.grad is not None:
                    shard.grad = shard.grad.clone()
        elif self.flat is None:
            self.allocate()


class ShardLayout(Layout):
    """Fixed buckets, since each rank keeps its part of them: only their order follows backward."""

    def __init__(self, module, buckets):
        self.owner = {p: bucket for bucket in buckets for p in bucket.parameters}
        super().__init__(module, 0, wide=False)
        for bucket in buckets:
            bucket.fellows = lambda: self.buckets  # those of this backward

    def cut(self, parameters):
        """The buckets that have any of `parameters`, in the order of these."""
        self.buckets = list(dict.fromkeys(self.owner[p] for p in parameters))
        self.bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}


def add_up_pieces(comm, bucket):
    """Sum a bucket's pieces at their owners.  Cost: a reduce-scatter of its values."""
    add_up(comm, bucket.pieces)
    bucket.reduced()


def _finite(x) -> bool:
    return bool(x.isfinite().all())
