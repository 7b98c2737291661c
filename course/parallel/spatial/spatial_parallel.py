"""Spatial parallel: an ordinary network computes with images of which every rank has a tile.

    net = SpatialParallel(resnet, comm, grid=(2, 2))
    loss = cross_entropy(net(images), classes)      the same number on all ranks
    loss.backward()                                 the whole batch's gradient, on all ranks

Source: Dryden et al. 2019, «Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained
Parallelism» (the idea).
"""

import copy
import math

from torch import nn

from course.parallel.array.distributed_array import DistributedArray, part
from course.parallel.array.layout import evenly
from course.parallel.flat_parameters import broadcast_module

NAMES = """
Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Linear Flatten Identity
AvgPool1d AvgPool2d AvgPool3d MaxPool1d MaxPool2d MaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d
AdaptiveAvgPool3d BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm GroupNorm
Dropout Dropout1d Dropout2d Dropout3d ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d
ConstantPad3d CircularPad1d CircularPad2d CircularPad3d ReflectionPad1d ReflectionPad2d
ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
ReLU ReLU6 ELU SELU CELU GELU SiLU Mish Tanh Sigmoid LeakyReLU Softplus Hardtanh Hardswish
Softmax LogSoftmax Softmax2d MSELoss CrossEntropyLoss
"""
SERVED = set(NAMES.split()) | {"Sequential", "ModuleList", "ModuleDict"}


class SpatialParallel(nn.Module):
    """`module`, whose images are cut into `grid` (a number for each spatial axis) tiles.

    Every rank has all weights; rank 0's are given to all.  A batch norm has the statistics of whole
    images.  Until the last mean over places, what layers compute is a DistributedArray.
    Cost: of each layer the halos that its windows see; of each weight an all-reduce in backward.
    Raises ValueError for a grid that does not fit the ranks, and for layers of torch that cannot
    work on tiles.  What depends on the images is told by the first forward: layers do not know
    their size, and a Conv1d may come behind a global mean, where places are no more; so may fewer
    tiles than ranks be right, for arrays whose batch is cut as well.
    """

    def __init__(self, module, comm, grid):
        super().__init__()
        evenly(grid, grid)  # numbers of parts
        if comm.size % math.prod(grid):  # a batch that is cut as well needs the tiles many times
            raise ValueError(f"rank {comm.rank}: the grid {' x '.join(map(str, grid))} has "
                             f"{math.prod(grid)} tiles, and {comm.size} ranks are no multiple of "
                             "that")  # fmt: skip
        for name, layer in module.named_modules():
            _check_layer(name, layer)
        self.module, self.comm, self.grid = module, comm, tuple(grid)
        broadcast_module(comm, module)

    def forward(self, images):
        """What module gives for images [batch, channels, *places], an array or a whole tensor of
        which every rank takes its tile.

        Raises ValueError for images with another number of axes.
        """
        if len(images.shape) != 2 + len(self.grid):
            raise ValueError(
                f"rank {self.comm.rank}: images for the grid {self.grid} have "
                f"{2 + len(self.grid)} axes, not the shape {tuple(images.shape)}"
            )
        if not isinstance(images, DistributedArray):
            images = part(self.comm, images, (1, 1, *self.grid))
        return self.module(images)

    def __deepcopy__(self, memo):
        """Another network, on the same ranks."""
        memo[id(self.comm)] = self.comm
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        other.__dict__ = copy.deepcopy(self.__dict__, memo)
        return other

    def extra_repr(self):
        return f"grid={self.grid}"


def _check_layer(name, layer):
    """Raises ValueError for a layer of torch that looks farther than any window."""
    kind = type(layer)
    of_torch = kind.__module__.startswith("torch.nn.modules") and not any(
        True for _ in layer.children()
    )
    if of_torch and kind.__name__ not in SERVED:
        raise ValueError(f"{name or 'the module'} is a {kind.__name__}, which does not work on "
                         "tiles of an image")  # fmt: skip
