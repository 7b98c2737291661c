"""Buckets: many gradients side by side in one flat tensor, so that one message carries them."""

import operator

import torch

from course.collectives import broadcast
from course.parallel.flat_parameters import check_same_model

COUNTS = 4  # at the end of a tail: the weight, and three numbers of ranks
TRAITS = operator.attrgetter("requires_grad", "dtype", "device")


class Bucket:
    """Room for the gradients of `parameters` (one dtype) and, in its `tail`, for what they weigh.

    values [elements] are real; a complex gradient is pairs of them.  tail [parameters + COUNTS]:
    for each parameter whether it has a gradient; then the weight of this rank, and whether its
    backwards passed no forward, had different rows, are not finite.  The sums over ranks tell which
    gradients exist, and over how many samples.  Both are parts of one tensor, `flat`; but half
    types, which do not hold such numbers, have a float32 tail beside it, or are `wide`: float32.
    """

    def __init__(self, parameters, wide=False):
        self.parameters, self.wide = list(parameters), wide
        self.filled, self.factor, self.weight, self.totals = set(), 1.0, 0.0, []
        self.allocate()

    def allocate(self):
        """Take memory for it; what is in it, `fill` and `finalize` say."""
        first, sizes = self.parameters[0], [real_elements(p) for p in self.parameters]
        dtype, lengths = first.dtype.to_real(), [sum(sizes), len(sizes) + COUNTS]
        half = dtype.itemsize < 4
        if half and not self.wide:
            self.flat = self.values = torch.empty(lengths[0], dtype=dtype, device=first.device)
            self.tail = torch.empty(lengths[1], dtype=torch.float32, device=first.device)
        else:
            dtype = torch.float32 if half else dtype
            self.flat = torch.empty(sum(lengths), dtype=dtype, device=first.device)
            self.values, self.tail = self.flat.split(lengths)
        parts = self.values.split(sizes)
        self._views = {p: shaped(part, p) for p, part in zip(self.parameters, parts)}

    def release(self):
        """Give its memory back; what was read of its totals stays."""
        self.flat = self.values = self.tail = None
        self._views = {}

    def view(self, parameter):
        """Where the gradient of `parameter` is, in its shape."""
        return self._views[parameter]

    def part(self, parameter):
        """The values [elements] that are the gradient of `parameter`."""
        return as_real(self._views[parameter]).reshape(-1)

    def fill(self, parameter):
        """Put the gradient of `parameter`, `factor` times, in its place."""
        torch.mul(parameter.grad, self.factor, out=self._views[parameter])
        self.filled.add(parameter)

    def finalize(self, factor, weight, *counts):
        """Make it ready to be summed, `factor` times the gradients; weight and counts: the tail's.

        A gradient that was not put in is flagged as absent; its place still takes part in the sum.
        """
        flags = [1.0] * len(self.parameters) if self.full else self._fill_up()
        if weight == 0:
            self.values.zero_()  # of no samples not even nan counts
        elif factor != self.factor:  # more forwards were passed since the first was put in
            self.values.mul_(factor / self.factor)
        tail = torch.tensor([*flags, weight, *counts, 0.0], dtype=self.tail.dtype, device="cpu")
        self.tail.copy_(tail)
        self.filled, self.weight = set(), weight

    @property
    def full(self) -> bool:
        return len(self.filled) == len(self.parameters)

    def _fill_up(self) -> list:
        """Fill what is not filled; which parameters were before."""
        flags = [float(p in self.filled) for p in self.parameters]
        for parameter, flag in zip(self.parameters, flags):
            if not flag and parameter.grad is not None:
                self.fill(parameter)
            elif not flag:
                self._views[parameter].zero_()
        return flags

    def read_totals(self):
        """Read the tail, which holds sums over ranks now."""
        if self.tail.is_meta:
            self.totals = [1.0] * (len(self.parameters) + 1) + [0.0] * (COUNTS - 1)
        else:
            self.totals = self.tail.tolist()

    @property
    def counts(self) -> list:
        """The sums over ranks of the weight and of the numbers of ranks behind it."""
        return self.totals[-COUNTS:]

    @property
    def in_use(self) -> list:
        """The parameters of which some rank has a gradient."""
        return [p for p, used in zip(self.parameters, self.totals) if used]

    @property
    def finite(self) -> bool:
        """Whether all values are finite; their sum may overflow where they are."""
        if self.values.is_meta or self.values.sum().isfinite():
            return True
        return _finite(self.values)

    def not_finite(self) -> list:
        """The parameters in use whose values are not finite."""
        return [] if self.finite else [p for p in self.in_use if not _finite(self.view(p))]

    def own_is_finite(self, parameter) -> bool:
        """Whether this rank's part of the gradient of `parameter` was finite."""
        return not self.weight or parameter.grad is None or _finite(parameter.grad)

    def copy_out(self, divisor):
        """Give each parameter that any rank used its gradient: the values by `divisor`."""
        for parameter in self.in_use:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            if divisor == 1:
                parameter.grad.copy_(self._views[parameter])
            else:
                torch.div(self._views[parameter], divisor, out=parameter.grad)


def cut_into_buckets(parameters, bucket_bytes, wide=False) -> list[Bucket]:
    """Buckets of neighbours of one dtype; one is closed when it holds `bucket_bytes` or more."""
    return [Bucket(group, wide) for group in group_neighbours(parameters, bucket_bytes)]


def group_neighbours(parameters, bucket_bytes) -> list:
    """[[parameters of one bucket], ...] as `cut_into_buckets` has it."""
    groups, size = [], bucket_bytes
    for parameter in parameters:
        if size >= bucket_bytes or groups[-1][0].dtype != parameter.dtype:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.nbytes
    return groups


class Layout:
    """Which parameter of `module` is in which bucket: the same on all ranks of `comm`."""

    def __init__(self, module, bucket_bytes, wide):
        self.module, self.bucket_bytes, self.wide = module, bucket_bytes, wide
        self.names = {p: name for name, p in module.named_parameters()}
        self._start()

    def _start(self):
        self.traits, self.ordered = self._traits(), False
        self.cut([p for p in reversed(self.names) if p.requires_grad])

    def _traits(self) -> list:
        return list(map(TRAITS, self.names))

    def cut(self, parameters):
        """Which buckets there are from now on, for `parameters` in the order of backward."""
        self.buckets = cut_into_buckets(parameters, self.bucket_bytes, self.wide)
        self.bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}

    def refresh(self, comm):
        """New buckets, if parameters were frozen, unfrozen, cast or moved.  Collective then."""
        if self.traits != self._traits():
            check_same_model(comm, self.module)
            self._start()

    def order(self, comm, arrived):
        """From now on buckets follow the order in which rank 0's first backward came by: that of
        its parameters `arrived`.  Collective the first time."""
        if self.ordered:
            return
        numbers = {p: number for number, p in enumerate(self.bucket_of)}
        rest = [p for p in numbers if p not in arrived]
        order = torch.tensor([numbers[p] for p in (*arrived, *rest)], device="cpu")
        broadcast(comm, order)
        parameters, self.ordered = list(numbers), True
        self.cut([parameters[number] for number in order.tolist()])

    def check_unchanged(self):
        """Raises RuntimeError if a parameter of the module is another object than at first."""
        there = dict(self.module.named_parameters())
        for parameter, name in self.names.items():
            if there.get(name, parameter) is not parameter:
                raise RuntimeError(
                    f"{name} was replaced since its module was wrapped, and is not averaged: wrap "
                    "the module anew, or load with assign=False"
                )


def real_elements(x) -> int:
    """How many real numbers a tensor has."""
    return x.numel() * (2 if x.is_complex() else 1)


def as_real(x):
    """A tensor as it is, a complex one as pairs of real numbers."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def shaped(part, parameter):
    """`part` [real elements] as a tensor of the shape of `parameter`; a complex one has pairs."""
    if parameter.is_complex():
        return torch.view_as_complex(part.view(*parameter.shape, 2))
    return part.view(parameter.shape)


def _finite(x) -> bool:
    return bool(x.isfinite().all())
