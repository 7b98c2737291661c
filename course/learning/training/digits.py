"""One small task for every way to train: handwritten digits, one split, one network, five seeds.

`digit_split` has the images, `digit_net` the network from a seed, `batches` a rank's part of every
batch, `backward` its gradient, `judge` the loss on images that nobody learns from.  `stacked_nets`
makes one network of several, which learn together for little more than the time of one.
"""

import copy
import functools
import itertools
import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course.learning.training import descent

SEEDS = 0, 1, 2, 3, 4
WIDTHS = 64, 32, 10
SIZES = 1024, 386, 387  # images for training, validation and test
ONE_HOT = torch.eye(WIDTHS[-1], dtype=torch.uint8)


class Images(NamedTuple):
    """Images x [count, 64], and which digit each is, y [count]."""

    x: torch.Tensor
    y: torch.Tensor


class Split(NamedTuple):
    """What is learned from, what methods and rates are chosen by, and what is kept for the end."""

    training: Images
    validation: Images
    test: Images


class Verdict(NamedTuple):
    """Mean cross-entropy (nats) and the share of wrong answers."""

    loss: float
    error: float


@functools.cache
def digit_split(dtype=torch.float32) -> Split:
    """The 1797 digits of scikit-learn, 8 x 8 pixels each, in one order for all, and cut in three.

    Pixels are standardised by the training images alone: each pixel's mean is taken off, and all
    are divided by one spread.  Source: Alpaydin & Kaynak 1998 (UCI).
    """
    from sklearn.datasets import load_digits  # a rank that is given its images goes without

    found = load_digits()
    order = torch.randperm(len(found.data), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(found.data)[order], torch.tensor(found.target)[order]
    known = x[: SIZES[0]]
    x = ((x - known.mean(dim=0)) / known.std()).to(dtype)
    return Split(*itertools.starmap(Images, zip(x.split(SIZES), y.split(SIZES))))


def digit_net(seed: int, widths=WIDTHS) -> nn.Sequential:
    """Layers of `widths` with ReLU between them, the same to the last bit wherever it is made.

    Weights are normal with deviation sqrt(2 / inputs), biases 0.  Source: He et al. 2015.
    """
    chance, layers = torch.Generator().manual_seed(seed), []
    for inputs, outputs in itertools.pairwise(widths):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / inputs), generator=chance)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batches(images: Images, batch: int, steps: int, seed: int, rank: int = 0, ranks: int = 1):
    """A rank's part of `steps` batches of `batch` images each: a list of `Images`.

    All ranks shuffle alike, pass after pass, so that the parts of one batch are different images.
    Raises ValueError for a rank that has no part, and where `batch` does not divide the images.
    """
    if not 0 <= rank < ranks <= batch:
        raise ValueError(f"rank {rank} of {ranks} has no part of a batch of {batch}")
    if len(images.x) % batch:
        raise ValueError(f"batches of {batch} leave a rest of {len(images.x)} images")
    deal = itertools.islice(descent.batches(len(images.x), batch, seed), steps)
    mine = [rows.tensor_split(ranks)[rank] for rows in deal]
    if not mine:
        return []
    sizes, rows = [len(each) for each in mine], torch.cat(mine)
    return [Images(*both) for both in zip(images.x[rows].split(sizes), images.y[rows].split(sizes))]


@torch.no_grad()
def backward(module, x, y):
    """Give `module`, a `digit_net`, the gradient of its mean loss on x [rows, 64], y [rows].

    As `cross_entropy(module(x), y).backward()` on cleared gradients does, by the chain rule written
    out, which an imagined cluster runs several times as fast.  The `stacked_nets` take
    x [nets, rows, 64] and y [nets, rows], and each gets the gradient of its own loss.
    """
    layers, inputs, many = module[::2], [x], x.dim() == 3
    affine = torch.baddbmm if many else torch.addmm
    for layer in layers[:-1]:
        inputs.append(affine(layer.bias, inputs[-1], layer.weight.mT).relu_())
    last = layers[-1]
    error = affine(last.bias, inputs[-1], last.weight.mT).softmax(dim=-1)
    error.sub_(ONE_HOT[y]).div_(y.shape[-1])
    for layer, given in zip(reversed(layers), reversed(inputs)):
        layer.weight.grad, layer.bias.grad = error.mT @ given, error.sum(dim=-2, keepdim=many)
        if given is not x:
            error = (error @ layer.weight).mul_(given > 0)


def stacked_nets(nets) -> nn.Sequential:
    """A network for `backward` in which each layer has the weights of all `nets`, [nets, outputs,
    inputs], and their biases, [nets, 1, outputs]."""
    together = copy.deepcopy(nets[0])
    for layer, *each in zip(together[::2], *(net[::2] for net in nets)):
        layer.weight = nn.Parameter(torch.stack([own.weight for own in each]))
        layer.bias = nn.Parameter(torch.stack([own.bias for own in each]).unsqueeze(1))
    return together


def weights_of_each(flat, net, count: int) -> torch.Tensor:
    """The weights [count, elements] of each of so many networks like `net` that are side by side,
    whose parameters follow one another in `flat`."""
    sizes = [count * p.numel() for p in net.parameters()]
    return torch.cat([part.view(count, -1) for part in flat.split(sizes)], dim=1)


def judge(module, images: Images) -> Verdict:
    """How good a network is on `images`."""
    with torch.no_grad():
        scores = module(images.x)
    wrong = scores.argmax(dim=1) != images.y
    return Verdict(cross_entropy(scores, images.y).item(), wrong.double().mean().item())
