"""Runs of one weird trick: with digits, where numbers are compared, and with a large net, where
bytes and moments are.

A network is two parts, what is `below` the border, whose examples are divided, and the dense layers
`above` it, whose weights are (`cut_dense`).  The schemes are in `parallel/hybrid/weird_trick.py`.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course.classroom.comparison import largest_difference
from course.classroom.steps import second_step
from course.learning.training.digits import batches, digit_split
from course.parallel.data import DataParallel
from course.parallel.hybrid import SummedGradients, gradient_plan
from course.parallel.hybrid.weird_trick import CutLinear, train_in_rounds

IMAGE, IMAGES = (3, 224, 224), 128  # of the large net; a rank's


def digit_halves():
    """For the digits: what is below the border, and what is above, in double precision."""
    torch.manual_seed(0)
    below = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten())
    return below.double(), nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)).double()


def descend(*parts, rate=0.1):
    """A step against the gradient, which is cleared."""
    with torch.no_grad():
        for weight in (each for part in parts for each in part.parameters()):
            weight -= rate * weight.grad
            weight.grad = None


def weights_of(*parts) -> list:
    """The parameters of some parts."""
    return [weight.detach() for part in parts for weight in part.parameters()]


def on_one_process(steps) -> list:
    """The weights of both halves after so many steps with 64 digits each."""
    below, above = digit_halves()
    for x, y in batches(digit_split(torch.float64).training, 64, steps, 0):
        cross_entropy(above(below(x.view(-1, 1, 8, 8))), y).backward()
        descend(below, above)
    return weights_of(below, above)


def apart_from_whole(whole, everyones) -> float:
    """The largest difference of a weight, on any rank, from the whole ones; a rank has all of a
    parameter, or its part along the first axis."""
    pairs = []
    for rank, mine in enumerate(everyones):
        for a, b in zip(whole, mine, strict=True):
            pairs.append((a if a.shape == b.shape else a.tensor_split(len(everyones))[rank], b))
    return largest_difference(pairs)


def cut_dense(comm, layers):
    """The same layers, of whose linear ones this rank has a part of the outputs."""
    return nn.Sequential(*[
        CutLinear(comm, layer, last=layer is layers[-1]) if isinstance(layer, nn.Linear) else layer
        for layer in layers
    ])  # fmt: skip


def layer_counts(network, images) -> list:
    """Of each layer with weights: (name, weights, products for an image, neurons that come in for
    so many images).  `network()` gives both parts, which nothing is computed with."""
    counts = []
    with torch.device("meta"):
        x = torch.empty(1, *IMAGE)
        for layer in (each for part in network() for each in part):
            y = layer(x)
            if isinstance(layer, nn.Conv2d | nn.Linear):
                own, places = layer.weight.numel(), y.numel() // len(layer.weight)
                counts.append((type(layer).__name__, own, own * places, images * x.numel()))
            x = y
    return counts


def step_by_examples(comm, network):
    """A step of a large `network()`, its examples divided in all layers."""
    with torch.device(comm.device):
        net = nn.Sequential(*network())
        x, y = torch.empty(IMAGES, *IMAGE), torch.zeros(IMAGES, dtype=torch.long)
    copies = DataParallel(net, comm)
    return second_step(comm, lambda: cross_entropy(copies(x), y).backward())


def step_by_the_trick(comm, network, scheme):
    """A step of a large `network()`, its weights divided above the border."""
    with torch.device(comm.device):
        below, above = network()
        x, y = torch.empty(IMAGES, *IMAGE), torch.zeros(IMAGES, dtype=torch.long)
    above, gradients = cut_dense(comm, above), SummedGradients(below, gradient_plan(below, comm))

    def step():
        seen = below(x)
        seen.backward(train_in_rounds(comm, above, cross_entropy, seen, y, scheme=scheme).slope)

    told = second_step(comm, step)
    del gradients
    return told


def round_moments(comm, network, scheme) -> list:
    """When all is ready, and when each round of the dense layers begins and ends, in seconds; they
    are the second part of `network()`."""
    with torch.device(comm.device):
        top = cut_dense(comm, network()[1])
        x, y = torch.empty(IMAGES, top[0].weight.shape[1]), torch.zeros(IMAGES, dtype=torch.long)
    moments = [comm.clock()]

    def noting(rows):
        moments.append(comm.clock())
        return top(rows)

    def update():
        moments.append(comm.clock())

    train_in_rounds(comm, noting, cross_entropy, x, y, scheme=scheme, update=update)
    return moments
