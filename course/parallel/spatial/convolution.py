"""Convolutions of arrays, and transposed ones: torch's functions with every option they have."""

import torch
from torch.nn import functional

from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.replicated import copied
from course.parallel.spatial.windows import Window, each_axis, nothing, windowed, worth_hiding

CONVOLUTIONS = functional.conv1d, functional.conv2d, functional.conv3d
TRANSPOSED = (
    functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d
)  # fmt: skip


def convolution(function, axes):
    """`function`, a convolution along `axes` axes, for arrays."""

    def of_array(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        stride, dilation = each_axis(stride, axes), each_axis(dilation, axes)
        before, after = _padding(padding, weight.shape[2:], dilation)
        sizes = zip(weight.shape[2:], stride, before, after, dilation)
        windows = [Window(*each) for each in sizes]
        weight, bias = _copied(x.comm, weight, bias)

        def convolved(seen):
            return function(seen, weight, bias, stride, 0, dilation, groups)

        def answers(seen, box):
            if not box.size or not len(seen):
                field = [window.reach + 1 for window in windows]
                return nothing((len(seen), len(weight), *box.shape), seen, field, convolved)
            return convolved(seen)

        # Where nothing is to be hidden, slabs save the tile's copy that the way back would keep.
        early = weight.requires_grad or worth_hiding(x)
        local, layout = windowed(x, windows, answers, early=early)
        return DistributedArray(x.comm, local, layout.with_axis(1, (0, len(weight))))

    return of_array


class Spread(Window):
    """The answers of a transposed convolution along an axis, each of which sees the places that
    are spread over it: the roles of place and window are exchanged; `after` are more answers."""

    def count(self, length: int) -> int:
        count = (length - 1) * self.stride - 2 * self.before + self.reach + self.after + 1
        if count < 1:
            raise ValueError(f"an axis of {length} has {count} answers: it needs one at least")
        return count

    def needs(self, start: int, stop: int) -> tuple:
        first = -(-(start + self.before - self.reach) // self.stride)
        last = (start + self.before) // self.stride  # an answer that no place reaches names this
        return min(first, last), (stop - 1 + self.before) // self.stride + 1

    def cuts(self, cuts) -> tuple:
        count, ends = self.count(cuts[-1]), (cut * self.stride for cut in cuts[1:-1])
        middles = (each - self.before + (self.reach + 1 - self.stride) // 2 for each in ends)
        return (0, *(min(max(each, 0), count) for each in middles), count)

    def inside(self, low: int, high: int) -> tuple:
        first = max((low - 1) * self.stride + self.reach + 1, low * self.stride) - self.before
        return first, max(first, high * self.stride - self.before)


def transposed(function, axes):
    """`function`, a transposed convolution along `axes` axes, for arrays."""

    def of_array(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
                 dilation=1):  # fmt: skip
        options = (each_axis(each, axes) for each in (stride, padding, output_padding, dilation))
        sizes = list(zip(weight.shape[2:], *options))
        spreads = [Spread(*each) for each in sizes]
        weight, bias = _copied(x.comm, weight, bias)
        maps = weight.shape[1] * groups

        def spread(seen):
            strides, dilations = (tuple(each[k] for each in sizes) for k in (1, 4))
            return function(seen, weight, bias, strides, 0, 0, groups, dilations)

        def answers(seen, box):
            if not box.size or not len(seen):
                return nothing((len(seen), maps, *box.shape), seen, [1] * axes, spread)
            return _crop(spread(seen), box, spreads, bias)

        local, layout = windowed(x, spreads, answers)
        return DistributedArray(x.comm, local, layout.with_axis(1, (0, maps)))

    return of_array


def _crop(wide, box, spreads, bias):
    """Of all answers that the places seen have a part in, those of `box`; where no place has one,
    there is the bias alone."""
    pads = []
    for spread, (start, stop), length in zip(spreads, box.intervals, wide.shape[2:]):
        first, _ = spread.needs(start, stop)
        at = first * spread.stride - spread.before
        pads.append((at - start, stop - at - length))
    pads = [side for both in reversed(pads) for side in both]
    more, less = [max(side, 0) for side in pads], [min(side, 0) for side in pads]
    if bias is None or max(pads) <= 0:
        return functional.pad(functional.pad(wide, more), less)
    flat = bias.to(wide.dtype).view(-1, *[1] * len(spreads))
    return functional.pad(functional.pad(wide - flat, more), less) + flat


for number, each in enumerate(CONVOLUTIONS, 1):
    implements(each, getattr(torch, each.__name__))(convolution(each, number))
for number, each in enumerate(TRANSPOSED, 1):
    implements(each, getattr(torch, each.__name__))(transposed(each, number))


def _copied(comm, weight, bias) -> tuple:
    return copied(comm, weight), None if bias is None else copied(comm, bias)


def _padding(padding, kernel, dilation) -> tuple:
    """(before, after) of every axis; torch's "same" has the odd one behind."""
    if padding == "same":
        reach = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [each // 2 for each in reach], [each - each // 2 for each in reach]
    both = each_axis(0 if padding == "valid" else padding, len(kernel))
    return both, both
