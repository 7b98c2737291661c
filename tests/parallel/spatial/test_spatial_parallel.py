"""Ordinary networks on tiles of images: outputs, losses and training are those of one process."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn import functional

from course.parallel.array import DistributedArray
from course.parallel.spatial.spatial_parallel import SpatialParallel
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn, off
from tests.parallel.spatial.networks import ResNet, UNet

GRIDS = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2)}


def classes(*shape, seed):
    return torch.randint(5, shape, generator=torch.Generator().manual_seed(seed))


TASKS = {
    "resnet": (ResNet, (2, 3, 37, 29), lambda y, use: functional.cross_entropy(
        y, classes(2, seed=use))),
    "unet": (UNet, (2, 3, 18, 22), lambda y, use: functional.cross_entropy(
        y, classes(2, 18, 22, seed=use).masked_fill(classes(2, 18, 22, seed=9) == 0, -100),
        torch.linspace(1, 2, 5).double(), label_smoothing=0.1)),
    "squares": (UNet, (1, 3, 12, 14), lambda y, use: functional.mse_loss(
        y.softmax(1), drawn(1, 5, 12, 14, seed=use))),
}  # fmt: skip


def trained(comm, name):
    """Five steps on changing images, alone and on tiles: what loss, weights and buffers differ."""
    made, shape, loss = TASKS[name]
    torch.manual_seed(comm.rank)  # rank 0's weights are those of all
    mine = SpatialParallel(made().double(), comm, GRIDS[comm.size])
    whole = copy.deepcopy(mine.module)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1, momentum=0.9) for each in (whole, mine)]
    errors = []
    for use in range(5):
        images, losses = drawn(*shape, seed=use), []
        for net, optimizer in zip((whole, mine), optimizers):
            torch.manual_seed(use)
            optimizer.zero_grad()
            losses.append(loss(net(images), use))
            losses[-1].backward()
            optimizer.step()
        errors.append(losses[0] - losses[1])
        both = zip(whole.state_dict().values(), mine.module.state_dict().values(), strict=True)
        errors += [(a - b).double() for a, b in both]
    return max(off(each) for each in errors)


def every_task(comm):
    return {name: trained(comm, name) for name in TASKS}


@functools.cache
def errors(ranks):
    """Of all tasks, in one run."""
    return run(every_task, ranks, timeout=120)


@pytest.mark.parametrize("ranks", GRIDS)
@pytest.mark.parametrize("name", TASKS)
def test_training_is_that_of_one_process(name, ranks):
    assert max(each[name] for each in errors(ranks)) < 1e-12


def evaluated(comm):
    net = SpatialParallel(UNet().double(), comm, (comm.size, 1)).eval()
    images = drawn(2, 3, 18, 22)
    with torch.no_grad():
        found = net(images)
        error = found.gather() - net.module(images)
        return isinstance(found, DistributedArray), off(error)


def test_what_it_gives_for_images_is_an_array_of_tiles():
    for array, error in run(evaluated, 3, timeout=20):
        assert array and error < 1e-12


def wrong(comm, how):
    {
        "layer": lambda: SpatialParallel(nn.Sequential(nn.Conv2d(1, 1, 3), nn.LSTM(3, 3)), comm,
                                         (2, 1)),
        "grid": lambda: SpatialParallel(UNet(), comm, (2, 2)),
        "ranks": lambda: SpatialParallel(UNet().double(), comm, (1, 1))(drawn(1, 3, 8, 8)),
        "parts": lambda: SpatialParallel(UNet(), comm, (0, 2)),
        "axes": lambda: SpatialParallel(UNet().double(), comm, (2, 1))(drawn(3, 8, 8)),
        "softmax": lambda: SpatialParallel(nn.Softmax(2), comm, (2, 1))(drawn(1, 3, 8, 8)),
        "joined": lambda: torch.cat(2 * [SpatialParallel(nn.Identity(), comm, (2, 1))(
            drawn(1, 3, 8, 8))], 2),
    }[how]()  # fmt: skip


@pytest.mark.parametrize("how, sentence", [
    ("layer", "1 is a LSTM, which does not work on tiles of an image"),
    ("grid", "rank 0: the grid 2 x 2 has 4 tiles, and 2 ranks are no multiple of that"),
    ("ranks", "rank 0: the grid 1 x 1 x 1 x 1 has 1 parts, and there are 2 ranks"),
    ("parts", "an axis is cut into at least 1 part, not 0"),
    ("axes", r"rank 0: images for the grid \(2, 1\) have 4 axes, not the shape \(3, 8, 8\)"),
    ("softmax", "rank 0: axis 2 of 1 x 3 x 8 x 8 cut 1 x 1 x 2 x 1 is cut, and a softmax goes"),
    ("joined", "rank 0: along axis 2, which is cut, of 1 x 3 x 8 x 8 cut 1 x 1 x 2 x 1 nothing"),
])  # fmt: skip
def test_what_cannot_be(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, how, timeout=5)


def copied(comm):
    """What a net with a spectral norm, its copy, and a changed copy differ from the whole net."""
    conv = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 2, 3).double())
    net = SpatialParallel(conv, comm, (comm.size, 1)).eval()
    again, images = copy.deepcopy(net), drawn(1, 3, 8, 6)
    with torch.no_grad():
        whole = conv(images)
        found = [net(images), again(images)]
        again.module.bias += 1
        found += [net(images), again(images), copy.deepcopy(again(images))]
        return [round(float((x.gather() - whole).max()), 9) for x in found]


def test_a_copy_is_another_net_on_the_same_ranks():
    assert run(copied, 2, timeout=20) == [[0, 0, 0, 1, 1]] * 2
