"""Runs on tiles of an image: what a rank computes of its own, what it fetches, what it keeps.

A rank imports this and no more; a layout's boxes are those of `parallel/array`.
"""

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import conv2d, mse_loss

from course.parallel.array import Box, DistributedArray, evenly, part
from course.parallel.array.pieces import cost
from course.parallel.spatial.spatial_parallel import SpatialParallel


def assembled(parts, shape):
    """The whole image, from (tile, its box) of every rank."""
    whole = torch.empty(shape)
    for tile, box in parts:
        whole[box.within(Box.whole(shape))] = tile
    return whole


def tile_alone(comm, image, layers):
    """What `layers(x)` makes of this rank's tile of 2 x 2, which knows nothing of the others, and
    its box."""
    tile = part(comm, image, (1, 1, 2, 2))
    return layers(tile.local), tile.box


def tile_of_array(comm, image, layers):
    """What `layers(x)` makes of the image as an array of 2 x 2 tiles: this rank's, and its box."""
    answers = layers(part(comm, image, (1, 1, 2, 2)))
    return answers.local, answers.box


def grown(box, by):
    """A box that reaches `by` (a number for each axis) farther on both sides."""
    return Box.of(*((start - n, stop + n) for (start, stop), n in zip(box.intervals, by)))


def halo_boxes(x):
    """Of every rank, the box that it fetches of an array of images for windows of 3 x 3."""
    return [grown(box, (0, 0, 1, 1)) for box in x.layout.boxes()]


def own_slope(comm, image, first, second, forget):
    """This rank's part of the slope of the first of two layers' filters, on strips; the loss is the
    sum of squares.  `forget`: the halo of the second layer counts as a constant."""
    weight, x = first.clone().requires_grad_(), part(comm, image, (1, 1, comm.size, 1))
    hidden = torch.relu(conv2d(x.fetch(halo_boxes(x)), weight))
    hidden = DistributedArray(comm, hidden, x.layout.with_axis(1, (0, len(weight))))
    regions = halo_boxes(hidden)
    seen = hidden.fetch(regions)
    if forget:  # only what is its own has a way back
        seen = seen.detach().clone()
        seen[hidden.box.within(regions[comm.rank])] = hidden.local
    conv2d(seen, second).square().sum().backward()
    return weight.grad


def kilobytes_sent(trace, call, steps=1) -> float:
    """What all ranks together send in calls of this name, in each of so many steps."""
    sent = (event for event in trace.events if event.operation == "send" and call in event.call)
    return sum(event.bytes for event in sent) / steps / 1e3


def kept_mb(net, image, wanted) -> float:
    """MB that autograd keeps of a forward pass to the loss, each block of memory counted once."""
    kept = {}

    def note(tensor):
        memory = tensor.untyped_storage()
        kept[memory.data_ptr()] = memory.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = mse_loss(net(image), wanted)
    return sum(kept.values()) / 1e6 if loss.requires_grad else 0.0


def kept_on_tile(comm, net, image, wanted, grid) -> float:
    """The same on this rank's tile, which is in a block of memory of its own."""
    tile = part(comm, image, (1, 1, *grid)).clone()
    return kept_mb(SpatialParallel(net, comm, grid), tile, wanted)


def normalised_tile(comm, image, norm):
    """This rank's tile of 2 x 2 after a `norm`, and its box."""
    y = norm(part(comm, image, (1, 1, 2, 2)), None, None, training=True)
    return y.local, y.box


def share_fetched(side, across) -> float:
    """Of the rank that fetches most of an image of side x side pixels on across x across tiles:
    what it fetches for windows of 3 x 3, by its own tile."""
    layout = evenly((side, side), (across, across))
    regions = [grown(box, (1, 1)).meet(Box.whole(layout.shape)) for box in layout.boxes()]
    return max(got for _, got, _ in cost(layout, regions)) / layout.box(0).size
