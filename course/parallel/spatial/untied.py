"""Untied filters on an array: each rank has the weights of its own windows, and they never move."""

from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from course.learning.convolution.local_linear import check_input, check_windows, local_linear
from course.learning.nine_layers.layers import LocalLinear
from course.parallel.array.boxes import Box
from course.parallel.array.distributed_array import DistributedArray, implements, part
from course.parallel.array.layout import Layout, evenly
from course.parallel.spatial.windows import Window, nothing, windowed, worth_hiding


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
    rows, columns, own = *weights.layout.cuts[:2], {}
    holds = Box(*(side[:2] for side in weights.box))

    def prepare(boxes):
        slices = [box.within(holds) for box in boxes]
        own.update(zip(boxes, _Parts.apply(weights.local, slices)))

    def answers(seen, box):
        if not box.size or not len(seen):
            shape = len(seen), weights.shape[2] // block**2, *(block * n for n in box.shape)
            few = own[box].reshape(-1)[:0]
            return nothing(shape, seen, weights.shape[3:5], lambda none: none.reshape(-1) * few)
        return local_linear(seen, own[box], stride=stride, block=block)

    local, layout = windowed(x, windows, answers, cuts=(rows, columns), prepare=prepare,
                             early=worth_hiding(x))  # fmt: skip
    maps = weights.shape[2] // block**2
    squares = [tuple(block * cut for cut in cuts) for cuts in (rows, columns)]
    return DistributedArray(x.comm, local, Layout((layout.cuts[0], (0, maps), *squares)))


class _Parts(Function):
    """Views of parts that make up a whole; on the way back they are written into one.

    A slice of its own for each would give a whole of zeros for each, and their sum: of weights,
    which are most of what a rank has, many times the memory and the time."""

    @staticmethod
    def forward(ctx, whole, slices):
        ctx.slices, ctx.shape = slices, whole.shape
        return tuple(whole[each] for each in slices)

    @staticmethod
    @once_differentiable
    def backward(ctx, *slopes):
        if len(slopes) == 1:
            return slopes[0], None
        whole = slopes[0].new_empty(ctx.shape)
        for each, slope in zip(ctx.slices, slopes):
            whole[each] = slope
        return whole, None


def cut_untied(module, comm, grid):
    """Leave each rank only the untied weights of its own windows; returns `module`.

    `grid` (down, across) is that of the images, whose windows are cut evenly.  Every `weight` of a
    LocalLinear becomes an array, and its local part a parameter, `own_weight`, whichever the layer
    has at that moment: what an optimizer is given, or a state dict has, is this rank's alone.
    Nothing is sent: all ranks make the same network first.
    """
    cut = {}  # what layers share, they share afterwards
    for layer in [each for each in module.modules() if isinstance(each, LocalLinear)]:
        weight = layer.weight
        if weight not in cut:
            layout = evenly(weight.shape, (*grid, *(1,) * (weight.dim() - 2)))
            own = part(comm, weight.detach(), layout=layout).local.clone()
            cut[weight] = nn.Parameter(own, requires_grad=weight.requires_grad), layout
        del layer.weight
        layer.own_weight, layout = cut[weight]
        layer.__class__ = _with_own_weight(type(layer), comm, layout)
    return module


def _with_own_weight(kind, comm, layout) -> type:
    """The class `kind` with a `weight` made of `own_weight` when it is asked for: one that was kept
    would not learn of a parameter put in place of another."""

    def weight(layer):
        return DistributedArray(comm, layer.own_weight, layout)

    return type(kind.__name__, (kind,), {"weight": property(weight)})
