"""Convolution and pooling of arrays: the functions of torch, with every option that they have."""

import torch
from torch.nn import functional

from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.layout import Layout
from course.parallel.array.replicated import copied
from course.parallel.spatial.windows import Window, windowed

CONVOLUTIONS = {functional.conv1d: 1, functional.conv2d: 2, functional.conv3d: 3}
AVERAGES = {functional.avg_pool1d: 1, functional.avg_pool2d: 2, functional.avg_pool3d: 3}


def convolution(function, axes):
    """`function`, a convolution along `axes` axes, for arrays."""

    def of_array(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        stride, dilation = _each(stride, axes), _each(dilation, axes)
        before, after = _padding(padding, weight.shape[2:], dilation)
        sizes = zip(weight.shape[2:], stride, before, after, dilation)
        weight = copied(x.comm, weight)
        bias = None if bias is None else copied(x.comm, bias)

        def answers(seen, box):
            if not box.size or not len(seen):
                return _nothing((len(seen), len(weight), *box.shape), seen, weight, bias)
            return function(seen, weight, bias, stride, 0, dilation, groups)

        local, layout = windowed(x, [Window(*each) for each in sizes], answers)
        return DistributedArray(x.comm, local, _with_maps(layout, len(weight)))

    return of_array


def average(function, axes):
    """`function`, a mean over windows along `axes` axes, for arrays."""

    def of_array(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None):  # fmt: skip
        kernel = _each(kernel_size, axes)
        stride = kernel if stride is None or stride == [] else _each(stride, axes)
        if ceil_mode or not count_include_pad:
            raise NotImplementedError("means over windows that are not whole: gather() first")
        padding = _each(padding, axes)
        sizes = zip(kernel, stride, padding, padding)
        divisor = {} if divisor_override is None else {"divisor_override": divisor_override}

        def answers(seen, box):
            if not box.size or not seen.shape[0]:
                return _nothing((*seen.shape[:2], *box.shape), seen)
            return function(seen, kernel, stride, **divisor)

        local, layout = windowed(x, [Window(*each) for each in sizes], answers)
        return DistributedArray(x.comm, local, layout)

    return of_array


for name, number in CONVOLUTIONS.items():
    implements(name, getattr(torch, name.__name__))(convolution(name, number))
for name, number in AVERAGES.items():
    implements(name)(average(name, number))


def _each(value, axes) -> tuple:
    """One number for every axis."""
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _padding(padding, kernel, dilation) -> tuple:
    """(before, after) of every axis; torch's "same" has the odd one behind."""
    if padding == "same":
        reach = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return [each // 2 for each in reach], [each - each // 2 for each in reach]
    both = _each(0 if padding == "valid" else padding, len(kernel))
    return both, both


def _nothing(shape, *used):
    """Answers of no window, which come from `used` all the same: a rank without an output takes
    part in the backward pass."""
    return sum(x.sum() for x in used if x is not None).mul(0).expand(shape)


def _with_maps(layout, maps) -> Layout:
    return layout.with_axis(1, (0, maps))
