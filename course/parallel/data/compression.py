"""Fewer bytes for a gradient: one bit a number, only the largest, or two thin matrices.

Each is a hook for `DataParallel(..., hook=OneBit())`: it leaves in the bucket an estimate of the
sum over ranks, the same on all of them.  What an estimate leaves out is kept, and added to the next
gradient (error feedback): late, but not lost.
"""

import numpy
import torch

from course.collectives import all_gather, all_reduce


class Feedback:
    """What was left out of each parameter's gradients so far, on this rank."""

    def __init__(self):
        self.left = {}

    def add_to(self, bucket):
        """Add to each gradient in the bucket what was left out before."""
        for parameter in bucket.parameters:
            if parameter in self.left:
                bucket.place(parameter).add_(self.left[parameter])

    def keep(self, parameter, wanted, sent):
        self.left[parameter] = wanted - sent


class OneBit(Feedback):
    """The sign of every number, and for each tensor the means of those of either sign.

    Cost: (p - 1)(n / 32 + 8 a tensor) bytes a rank of n bytes of float32, by all-gather.
    Source: Seide et al. 2014 (means of the whole tensor, not of its columns).
    """

    def __call__(self, comm, bucket):
        all_reduce(comm, bucket.tail)
        self.add_to(bucket)
        places = [bucket.place(parameter) for parameter in bucket.parameters]
        means = torch.stack([sign_means(place) for place in places])
        signs = torch.from_numpy(numpy.packbits((bucket.values > 0).numpy()))
        for parameter, place, pair in zip(bucket.parameters, places, means):
            self.keep(parameter, place, torch.where(place > 0, *pair))
        all_signs, all_means = (_gathered(comm, x) for x in (signs, means))
        bucket.values.zero_()
        for rank_signs, rank_means in zip(all_signs, all_means):
            unpacked = numpy.unpackbits(rank_signs.numpy(), count=bucket.values.numel())
            positive = torch.from_numpy(unpacked).bool()
            parts = positive.split([place.numel() for place in places])
            for place, part, pair in zip(places, parts, rank_means):
                place.add_(torch.where(part.view(place.shape), *pair))


def sign_means(x) -> torch.Tensor:
    """The means [2] of the positive elements of x [any shape], and of the others; 0 of none."""
    positive = x > 0
    count = positive.sum()
    sums = torch.stack([x[positive].sum(), x[~positive].sum()])
    return sums / torch.stack([count, x.numel() - count]).clamp(min=1)


class TopK:
    """The largest `fraction` of each rank's numbers; the others gather until they are large.

    The momentum is in here (the optimiser's must be 0): velocity <- momentum velocity + gradient,
    gathered <- gathered + velocity; where `gathered` is sent both are cleared.
    Cost: (p - 1) k (4 bytes + an index of 4) a rank for k numbers of float32, by all-gather.
    Source: Lin et al. 2018, «Deep Gradient Compression».  Raises ValueError for a fraction
    outside (0, 1].
    """

    def __init__(self, fraction=0.001, momentum=0.9):
        if not 0 < fraction <= 1:
            raise ValueError(f"a fraction lies above 0 and is at most 1, not {fraction}")
        self.fraction, self.momentum, self.velocity, self.gathered = fraction, momentum, {}, {}

    def __call__(self, comm, bucket):
        all_reduce(comm, bucket.tail)
        gathered = torch.cat([self._gather(bucket, p).flatten() for p in bucket.parameters])
        count = max(1, round(self.fraction * gathered.numel()))
        where = gathered.abs().topk(count, sorted=False).indices
        chosen = gathered[where]
        self._clear(bucket, where)
        all_where = _gathered(comm, where.int())
        bucket.values.zero_()
        for indices, numbers in zip(all_where, _gathered(comm, chosen)):
            bucket.values.index_add_(0, indices.long(), numbers)

    def _gather(self, bucket, parameter):
        gradient = bucket.place(parameter)
        before = self.velocity.get(parameter, torch.zeros_like(gradient))
        velocity = self.velocity[parameter] = self.momentum * before + gradient
        before = self.gathered.get(parameter, torch.zeros_like(gradient))
        self.gathered[parameter] = before + velocity
        return self.gathered[parameter]

    def _clear(self, bucket, where):
        kept = torch.ones_like(bucket.values)
        kept[where] = 0
        parts = kept.split([p.numel() for p in bucket.parameters])
        for parameter, part in zip(bucket.parameters, parts):
            self.velocity[parameter] *= part.view(parameter.shape)
            self.gathered[parameter] *= part.view(parameter.shape)


class PowerSGD(Feedback):
    """Each matrix [n, m] as a product of [n, rank] and [rank, m]; vectors go as they are.

    One step of a power iteration a time, begun where the last one ended.
    Cost: two all-reduces, of rank (n + m) numbers a matrix together.  Source: Vogels et al. 2019.
    """

    def __init__(self, rank=2, seed=0):
        super().__init__()
        self.rank, self.generator, self.bases = rank, torch.Generator().manual_seed(seed), {}

    def __call__(self, comm, bucket):
        self.add_to(bucket)
        matrices = [p for p in bucket.parameters if p.dim() > 1]
        views = [bucket.place(p).flatten(1) for p in matrices]
        lefts = [view @ self._basis(p, view) for p, view in zip(matrices, views)]
        others = [bucket.place(p) for p in bucket.parameters if p.dim() < 2]
        _sum_together(comm, [*lefts, *others, bucket.tail])
        lefts = [torch.linalg.qr(left).Q for left in lefts]
        rights = [view.T @ left for left, view in zip(lefts, views)]
        _sum_together(comm, rights)
        for parameter, view, left, right in zip(matrices, views, lefts, rights):
            total = left @ right.T
            self.keep(parameter, view, total / comm.size)
            self.left[parameter] = self.left[parameter].view(parameter.shape)
            self.bases[parameter] = right
            view.copy_(total)

    def _basis(self, parameter, view):
        if parameter not in self.bases:
            shape = view.shape[1], min(self.rank, *view.shape)
            self.bases[parameter] = torch.randn(shape, generator=self.generator, dtype=view.dtype)
        return self.bases[parameter]


def _gathered(comm, x) -> list:
    """x [the same shape on all ranks] of every rank."""
    everyone = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, everyone, x)
    return everyone


def _sum_together(comm, tensors):
    """Sum all these over ranks, in place, with one all-reduce."""
    flat = torch.cat([x.flatten() for x in tensors]) if tensors else torch.empty(0)
    all_reduce(comm, flat)
    for x, part in zip(tensors, flat.split([x.numel() for x in tensors])):
        x.copy_(part.view(x.shape))
