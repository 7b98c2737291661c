"""Means and maxima over windows of arrays, and over all there is."""

import math

import torch
from torch.nn import functional

from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.shapes import mean
from course.parallel.spatial.windows import Window, each_axis, nothing, windowed

AVERAGES = functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d
MAXIMA = functional.max_pool1d, functional.max_pool2d, functional.max_pool3d
ADAPTIVE = (
    functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d
)  # fmt: skip


def average(function, axes):
    """`function`, a mean over windows along `axes` axes, for arrays."""

    def of_array(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None):  # fmt: skip
        windows = _windows(kernel_size, stride, padding, 1, ceil_mode, axes)
        kernel, stride = ([each[k] for each in windows] for k in (0, 1))
        margin = [each.before if count_include_pad else 0 for each in windows]

        def averaged(seen):
            if divisor_override is None:
                return function(seen, kernel, stride)
            return function(seen, kernel, stride, divisor_override=divisor_override)

        def answers(seen, box):
            if not box.size or not seen.shape[0]:
                return nothing((*seen.shape[:2], *box.shape), seen, kernel, averaged)
            found = averaged(seen)
            if divisor_override is not None:
                return found
            counts = _counts(windows, box, x.shape[-axes:], margin)
            return found * (math.prod(kernel) / counts).to(found)

        local, layout = windowed(x, windows, answers)
        return DistributedArray(x.comm, local, layout)

    return of_array


def _counts(windows, box, lengths, margin) -> torch.Tensor:
    """How many places each window of `box` counts, those up to `margin` beyond the edges too."""
    counts = torch.ones((), dtype=torch.float64)
    for window, (start, stop), length, more in zip(windows, box.intervals, lengths, margin):
        first = torch.arange(start, stop) * window.stride - window.before
        last = (first + window.kernel).clamp(max=length + more)
        counts = counts[..., None] * (last - first.clamp(min=-more))
    return counts


def maximum(function, axes):
    """`function`, a maximum over windows along `axes` axes, for arrays."""

    def of_array(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **_):
        windows = _windows(kernel_size, stride, padding, dilation, ceil_mode, axes)
        kernel, stride, dilation = ([each[k] for each in windows] for k in (0, 1, 4))

        def highest(seen):
            return function(seen, kernel, stride, 0, dilation)

        def answers(seen, box):
            if not box.size or not seen.shape[0]:
                field = [each.reach + 1 for each in windows]
                return nothing((*seen.shape[:2], *box.shape), seen, field, highest)
            lowest = -math.inf if seen.is_floating_point() else torch.iinfo(seen.dtype).min
            beyond = _beyond(windows, box, x.shape[-axes:])
            return highest(functional.pad(seen, beyond, value=lowest))

        local, layout = windowed(x, windows, answers, clipped=True)
        return DistributedArray(x.comm, local, layout)

    return of_array


def _beyond(windows, box, lengths) -> list:
    """How far the windows of `box` see beyond the edges, as `pad` wants it."""
    pads = []
    for window, each, length in zip(windows, box.intervals, lengths):
        first, stop = window.needs(*each)
        pads = [max(-first, 0), max(stop - length, 0), *pads]
    return pads


def adaptive(function, axes):
    """`function`, means over as many windows as are asked for: one is the mean of all there is;
    for more the array is gathered."""

    def of_array(x, output_size):
        sizes = each_axis(output_size, axes)
        if set(sizes) != {1}:
            return function(x.gather(), output_size)
        return mean(x, tuple(range(x.ndim - axes, x.ndim)), keepdim=True)

    return of_array


for homes, made in ((AVERAGES, average), (MAXIMA, maximum), (ADAPTIVE, adaptive)):
    for number, each in enumerate(homes, 1):
        implements(each, getattr(torch, each.__name__, each))(made(each, number))


def _windows(kernel_size, stride, padding, dilation, ceil_mode, axes) -> list[Window]:
    """The windows of a pool, of which `stride` is as long as they are if it is not given."""
    kernel = each_axis(kernel_size, axes)
    stride = kernel if stride is None or stride == [] else each_axis(stride, axes)
    padding, dilation = each_axis(padding, axes), each_axis(dilation, axes)
    for k, p in zip(kernel, padding):
        if not 0 <= 2 * p <= k:
            raise ValueError(f"padding is at most half of a window: not {p} of {k}")
    sizes = zip(kernel, stride, padding, padding, dilation)
    return [Window(*each, not ceil_mode) for each in sizes]
