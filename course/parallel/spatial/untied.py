"""Untied filters on an array: each rank has the weights of its own windows, and they never move."""

from torch import nn

from course.learning.convolution.local_linear import check_input, check_windows, local_linear
from course.learning.nine_layers.layers import LocalLinear
from course.parallel.array.distributed_array import DistributedArray, implements, part
from course.parallel.array.layout import Layout, evenly
from course.parallel.spatial.windows import Window, nothing, windowed


@implements(local_linear)
def untied(x, weights, *, stride=1, block=1):
    """`local_linear` where x and the weights are arrays: windows are cut as their weights are.

    weights [rows, columns, maps * block * block, field, field, channels] are cut along rows and
    columns.  Cost: the pixels around each rank's own that its windows see, and no weight.
    """
    if not isinstance(x, DistributedArray) or not isinstance(weights, DistributedArray):
        raise ValueError("untied filters and their image are both cut, or neither is")
    check_input(x, weights.shape[5], weights.dtype)
    check_windows(weights, x.shape[2:], stride)
    windows = [Window(weights.shape[3], stride)] * 2
    rows, columns, first = *weights.layout.cuts[:2], weights.box.starts[:2]

    def answers(seen, box):
        own = weights.local[
            tuple(slice(a - at, b - at) for (a, b), at in zip(box.intervals, first))
        ]
        if not box.size or not len(seen):
            shape = len(seen), weights.shape[2] // block**2, *(block * n for n in box.shape)
            few = own.reshape(-1)[:0]
            return nothing(shape, seen, weights.shape[3:5], lambda none: none.reshape(-1) * few)
        return local_linear(seen, own, stride=stride, block=block)

    local, layout = windowed(x, windows, answers, cuts=(rows, columns))
    maps = weights.shape[2] // block**2
    squares = [tuple(block * cut for cut in cuts) for cuts in (rows, columns)]
    return DistributedArray(x.comm, local, Layout((layout.cuts[0], (0, maps), *squares)))


def cut_untied(module, comm, grid):
    """Leave each rank only the untied weights of its own windows; returns `module`.

    `grid` (down, across) is that of the images, whose windows are cut evenly.  Every `weight` of a
    LocalLinear becomes an array, and its local part a parameter, `own_weight`: what an optimizer
    is given is this rank's alone.  Nothing is sent: all ranks make the same network first.
    """
    cut = {}  # what layers share, they share afterwards
    for layer in [each for each in module.modules() if isinstance(each, LocalLinear)]:
        weight = layer.weight
        if weight not in cut:
            layout = evenly(weight.shape, (*grid, *(1,) * (weight.dim() - 2)))
            own = part(comm, weight.detach(), layout=layout).local.clone()
            cut[weight] = nn.Parameter(own, requires_grad=weight.requires_grad), layout
        layer.own_weight, layout = cut[weight]
        del layer.weight
        layer.weight = DistributedArray(comm, layer.own_weight, layout)
    return module
