"""The nine-layer net on a grid of ranks, by its own lines of code: as on one process."""

import copy

import pytest
import torch

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.learning.convolution.local_linear import local_linear
from course.learning.nine_layers.layers import LocalLinear
from course.learning.nine_layers.network import (
    NineLayers,
    fine_tuning_gradient,
    joint_objective,
    objective,
)
from course.learning.nine_layers.plan import Geometry, Norm, Plan
from course.parallel.array import DistributedArray, evenly, part
from course.parallel.array.pieces import cost
from course.parallel.spatial.untied import cut_untied
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn, off

NORM = Norm(3, 1.0, 0.01)
PLANS = {
    "norms": Plan(2, 11, Norm(3, 1.0, 0.02), (
        Geometry(4, 1, 3, 0.3, 2, 1, NORM), Geometry(3, 2, 2, 0.5, 2, 1, NORM),
        Geometry(1, 1, 2, 0.1, 1, 1, NORM),
    )),
    "blocks": Plan(1, 10, None, (
        Geometry(4, 2, 2, 0.3, 2, 2, NORM, block=2), Geometry(3, 1, 2, 0.3, 1, 1),
    )),
}  # fmt: skip
GRIDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2)}


def both(comm, name, grid):
    """The serial net and its images, the net on the grid and its part of them."""
    plan = PLANS[name]
    images = drawn(3, plan.channels, plan.side, plan.side)
    whole, cut = (NineLayers(plan, seed=0).double() for _ in range(2))
    return whole, images, cut_untied(cut, comm, grid), part(comm, images, (1, 1, *grid))


def gathered(comm, cut, gradients):
    """The gradients of all ranks' own weights, put together."""
    layouts = [stage.filters.weight.layout for stage in cut.stages]
    pairs = zip(gradients, layouts, strict=True)
    return [DistributedArray(comm, each, layout).gather() for each, layout in pairs]


def apart(first, second):
    return max(off(a - b) for a, b in zip(first, second, strict=True))


def compared(comm, name, grid):
    whole, images, cut, mine = both(comm, name, grid)
    top = whole(images)
    factor = drawn(*top.shape, seed=1)

    def loss(top):
        return (top * factor).sum()

    tuned = fine_tuning_gradient(whole, images, loss)
    joint = joint_objective(whole, images)
    slopes = torch.autograd.grad(joint, list(whole.parameters()))
    found = joint_objective(cut, mine)
    again = torch.autograd.grad(found, list(cut.parameters()))
    return [
        apart([top], [cut(mine).gather()]),
        apart(tuned, gathered(comm, cut, fine_tuning_gradient(cut, mine, loss))),
        off(joint - found) / float(joint.detach()),
        apart(slopes, gathered(comm, cut, again)),
    ]


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("ranks", GRIDS)
def test_the_net_its_objectives_and_their_gradients_are_those_of_one_process(ranks, name):
    assert max(max(each) for each in run(compared, ranks, name, GRIDS[ranks], timeout=60)) < 1e-12


@pytest.mark.parametrize("name", PLANS)
def test_on_several_machines_where_the_interior_comes_first_they_are_so_too(name):
    """On one machine all windows are computed at once; `cut_untied` of other tests is there."""
    on = simulated(one_switch(4, FREE, NDR))
    assert max(max(each) for each in run(compared, 4, name, GRIDS[4], on=on)) < 1e-12


def trained(comm, grid):
    """Five greedy steps of the first stage on changing images, beside the serial ones."""
    whole, _, cut, _ = both(comm, "norms", grid)
    (first, *_), (second, *_) = whole.stages, cut.stages
    for step in range(5):
        images = drawn(3, 2, 11, 11, seed=step)
        for stage, x in ((first, images), (second, part(comm, images, (1, 1, *grid)))):
            weights = list(stage.filters.parameters())
            slopes = torch.autograd.grad(objective(stage, x), weights)
            with torch.no_grad():
                weights[0] -= 0.01 * slopes[0]
    return apart([first.filters.weight], gathered(comm, cut, [second.filters.own_weight,
                 *(s.filters.own_weight for s in cut.stages[1:])])[:1])  # fmt: skip


@pytest.mark.parametrize("ranks", GRIDS)
def test_greedy_steps_are_those_of_one_process(ranks):
    assert max(run(trained, ranks, GRIDS[ranks], timeout=60)) < 1e-12


def moved(comm):
    """Bytes of a layer forward, and of its slopes on the way back, beside the plan's cost."""
    image, weights = drawn(2, 3, 12, 12), drawn(9, 9, 4, 4, 4, 3)
    x = part(comm, image, (1, 1, 2, 2))
    x.local.requires_grad_()
    w = part(comm, weights, layout=evenly(weights.shape, (2, 2, 1, 1, 1, 1)))
    w.local.requires_grad_()
    out = local_linear(x, w)
    there = comm.meter.sent_bytes
    out.local.sum().backward()
    back = comm.meter.sent_bytes - there
    windows = [box.intervals[:2] for box in w.layout.boxes()]
    regions = [type(x.box).of((0, 2), (0, 3), *((a, b + 3) for a, b in each)) for each in windows]
    sent, got, _ = cost(x.layout, regions)[comm.rank]
    return (there, back) == (8 * sent, 8 * got) and sent > 0


def test_only_neurons_cross_and_no_weight():
    assert run(moved, 4, timeout=10) == [True] * 4


def wrong(comm, how):
    image, weights = drawn(1, 1, 6, 6), drawn(4, 4, 1, 3, 3, 1)
    x = part(comm, image, (1, 1, comm.size, 1))
    w = part(comm, weights, (comm.size, 1, 1, 1, 1, 1))
    {
        "one of them": lambda: local_linear(x, weights),
        "the other": lambda: local_linear(image, w),
        "windows": lambda: local_linear(part(comm, drawn(1, 1, 7, 6), (1, 1, comm.size, 1)), w),
    }[how]()


@pytest.mark.parametrize("how, sentence", [
    ("one of them", "untied filters and their image are both cut, or neither is"),
    ("the other", "untied filters and their image are both cut, or neither is"),
    ("windows", "weights of 4 x 4 windows do not fit on 7 x 6 pixels, which have 5 x 4"),
])  # fmt: skip
def test_what_does_not_fit(how, sentence):
    with pytest.raises(RankError, match=sentence):
        run(wrong, 2, how, timeout=5)


def shared(comm):
    """Of two layers that share a frozen weight, and one of its own: what is trained, and shared."""
    layers = [LocalLinear(1, 6, 3, 1, seed=seed) for seed in range(3)]
    layers[1].weight = layers[0].weight.requires_grad_(False)
    net = cut_untied(torch.nn.Sequential(*layers), comm, (comm.size, 1))
    trained = [p.requires_grad for p in net.parameters()]
    return trained, net[0].own_weight is net[1].own_weight


def test_what_layers_share_they_share_afterwards_and_what_is_frozen_stays_so():
    expected = [False, True], True
    assert run(shared, 2, on=simulated(one_switch(2, FREE, NDR))) == [expected] * 2


def replaced(comm):
    """Answers and slopes by a parameter in place of the first: loaded, called with, in a copy."""
    net = cut_untied(torch.nn.Sequential(LocalLinear(1, 6, 3, 2, seed=0)), comm, (comm.size, 1))
    image = part(comm, drawn(1, 1, 6, 6).float(), (1, 1, comm.size, 1))
    twice = {"0.own_weight": torch.nn.Parameter(2 * net[0].own_weight.detach())}
    expected, ways = 2 * net(image).local.detach(), []
    for way in "called", "copied", "loaded":
        other = copy.deepcopy(net) if way == "copied" else net
        if way == "called":
            answers, weight = (
                torch.func.functional_call(net, twice, (image,)),
                twice["0.own_weight"],
            )
        else:
            other.load_state_dict(twice, assign=True)
            answers, weight = other(image), other[0].own_weight
        answers.local.sum().backward()
        ways.append(torch.equal(answers.local, expected) and weight.grad.abs().sum() > 0)
        weight.grad = None
    return all(ways)


def test_a_weight_that_takes_the_place_of_another_is_the_one_that_computes():
    """`load_state_dict(assign=True)` left layers with the parameter that they had before."""
    assert run(replaced, 2) == [True] * 2
