"""Fewer bytes for a gradient: one bit a number, only the largest, or two thin matrices.

Each is a hook for `DataParallel(..., hook=OneBit())`: of this rank's shares in the bucket, which
add up to the mean, it leaves an estimate of the sum, the same on all ranks.  What an estimate
leaves out is kept, and added to the next gradient (error feedback): late, but not lost.
"""

import torch

from course.collectives import all_gather, all_reduce

SHIFTS = torch.arange(8, dtype=torch.uint8, device="cpu")  # of the eight flags in a byte


class Kept:
    """What a hook keeps of each parameter on this rank, in the attributes that `KEPT` names."""

    KEPT = ()

    def state_dict(self, module) -> dict:
        """What is kept, by the names of `module`'s parameters.  Each rank has its own."""
        names = {p: name for name, p in module.named_parameters()}
        return {kind: {names[p]: x.clone() for p, x in getattr(self, kind).items()}
                for kind in self.KEPT}  # fmt: skip

    def load_state_dict(self, state, module):
        """Go on from what `state_dict` gave on this rank.

        Raises ValueError for what is kept of a parameter that `module` has not.
        """
        parameters = dict(module.named_parameters())
        for kind in self.KEPT:
            for name in state[kind].keys() - parameters.keys():
                raise ValueError(f"{kind} is kept of {name}, which the model has not")
            setattr(self, kind, {parameters[name]: x.clone() for name, x in state[kind].items()})


class ErrorFeedback(Kept):
    """What was left out of each parameter's gradients so far, on this rank.

    A parameter that no rank uses in a step keeps it for the next one.
    """

    KEPT = ("residual",)

    def __init__(self):
        self.residual = {}

    def add_to(self, bucket):
        """Add to each gradient in use what was left out before."""
        for parameter in bucket.in_use:
            if parameter in self.residual:
                bucket.part(parameter).add_(self.residual[parameter])

    def keep(self, parameter, wanted, sent):
        self.residual[parameter] = wanted - sent


class OneBit(ErrorFeedback):
    """The sign of every number, and for each tensor the means of those of either sign.

    Cost: (p - 1)(N / 32 + 8 a tensor) bytes a rank of N bytes of float32, by all-gather.
    Source: Seide et al. 2014 (means of the whole tensor, not of its columns).
    """

    def __call__(self, comm, bucket):
        self.add_to(bucket)
        parts = {parameter: bucket.part(parameter) for parameter in bucket.parameters}
        means = {parameter: sign_means(part) for parameter, part in parts.items()}
        signs = pack_bits(bucket.values > 0)
        for parameter in bucket.in_use:
            part = parts[parameter]
            self.keep(parameter, part, torch.where(part > 0, *means[parameter]))
        all_signs = _gathered(comm, signs)
        all_means = _gathered(comm, torch.stack(list(means.values())))
        bucket.values.zero_()
        for rank_signs, rank_means in zip(all_signs, all_means):
            positive = unpack_bits(rank_signs, bucket.values.numel())
            flags = positive.split([part.numel() for part in parts.values()])
            for part, flag, pair in zip(parts.values(), flags, rank_means):
                part.add_(torch.where(flag, *pair))


def sign_means(x) -> torch.Tensor:
    """The means [2] of the positive elements of x [any shape], and of the others; 0 of none."""
    positive = x > 0
    count = positive.sum()
    sums = torch.stack([torch.where(positive, x, 0).sum(), torch.where(positive, 0, x).sum()])
    return sums / torch.stack([count, x.numel() - count]).clamp(min=1)


def pack_bits(flags) -> torch.Tensor:
    """Flags [n] as bytes [ceil(n / 8)], eight in each."""
    bits = torch.nn.functional.pad(flags.byte(), (0, -len(flags) % 8)).view(-1, 8)
    return (bits << SHIFTS.to(flags.device)).sum(1, dtype=torch.uint8)


def unpack_bits(packed, n) -> torch.Tensor:
    """The first n flags of bytes."""
    bits = packed[:, None] >> SHIFTS.to(packed.device)
    return bits.bitwise_and_(1).bool().view(-1)[:n]


class TopK(Kept):
    """The largest `fraction` of each rank's numbers; the others gather until they are large.

    The momentum is in here (the optimiser's must be 0): velocity <- momentum velocity + gradient,
    accumulated <- accumulated + velocity; where `accumulated` is sent both are cleared.  Both rest
    while no rank uses a parameter.
    Cost: (p - 1) k (4 bytes + an index of 4) a rank for k numbers of float32, by all-gather.
    Source: Lin et al. 2018, «Deep Gradient Compression».  Raises ValueError for a fraction
    outside (0, 1].
    """

    KEPT = ("velocity", "accumulated")

    def __init__(self, fraction=0.001, momentum=0.9):
        if not 0 < fraction <= 1:
            raise ValueError(f"a fraction lies above 0 and is at most 1, not {fraction}")
        self.fraction, self.momentum, self.velocity, self.accumulated = fraction, momentum, {}, {}

    def __call__(self, comm, bucket):
        for parameter in bucket.in_use:
            self._accumulate(parameter, bucket.part(parameter))
        count = max(1, round(self.fraction * bucket.values.numel()))
        where = bucket.values.abs().topk(count, sorted=False).indices
        chosen = bucket.values[where]
        self._clear(bucket, where)
        all_where = _gathered(comm, where.int())
        bucket.values.zero_()
        for indices, numbers in zip(all_where, _gathered(comm, chosen)):
            bucket.values.index_add_(0, indices.long(), numbers)

    def _accumulate(self, parameter, part):
        """Leave in the part of the bucket what has accumulated of this parameter."""
        before = self.velocity.get(parameter, torch.zeros_like(part))
        velocity = self.velocity[parameter] = self.momentum * before + part
        before = self.accumulated.get(parameter, torch.zeros_like(part))
        self.accumulated[parameter] = before + velocity
        part.copy_(self.accumulated[parameter])

    def _clear(self, bucket, where):
        bucket.values.fill_(1)[where] = 0
        for parameter in bucket.in_use:
            self.velocity[parameter] *= bucket.part(parameter)
            self.accumulated[parameter] *= bucket.part(parameter)


class PowerSGD(ErrorFeedback):
    """Each matrix [n, m] as a product of [n, rank] and [rank, m]; vectors go as they are.

    One step of a power iteration a time, begun where the last one ended.
    Cost: two all-reduces, of rank (n + m) numbers a matrix together.  Source: Vogels et al. 2019.
    """

    KEPT = ("residual", "bases")

    def __init__(self, rank=2, seed=0):
        super().__init__()
        self.rank, self.generator, self.bases = rank, torch.Generator().manual_seed(seed), {}

    def __call__(self, comm, bucket):
        self.add_to(bucket)
        matrices = [p for p in bucket.in_use if p.dim() > 1]
        views = [bucket.part(p).view(len(p), -1) for p in matrices]
        lefts = [view @ self._basis(p, view) for p, view in zip(matrices, views)]
        _sum_together(comm, [*lefts, *(bucket.part(p) for p in bucket.in_use if p.dim() < 2)])
        lefts = [torch.linalg.qr(left).Q for left in lefts]
        rights = [view.T @ left for left, view in zip(lefts, views)]
        _sum_together(comm, rights)
        for parameter, view, left, right in zip(matrices, views, lefts, rights):
            total = left @ right.T
            self.keep(parameter, view.flatten(), total.flatten() / comm.size)
            self.bases[parameter] = right
            view.copy_(total)

    def _basis(self, parameter, view):
        if parameter not in self.bases:
            shape = view.shape[1], min(self.rank, *view.shape)
            drawn = torch.randn(shape, generator=self.generator, dtype=view.dtype, device="cpu")
            self.bases[parameter] = drawn.to(view.device)
        return self.bases[parameter]


def _gathered(comm, x) -> list:
    """x [the same shape on all ranks] of every rank."""
    everyone = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, everyone, x)
    return everyone


def _sum_together(comm, tensors):
    """Sum all these over ranks, in place, with one all-reduce."""
    if tensors:
        flat = torch.cat([x.flatten() for x in tensors])
        all_reduce(comm, flat)
        for x, part in zip(tensors, flat.split([x.numel() for x in tensors])):
            x.copy_(part.view(x.shape))
