import math

import pytest
import torch

from course.learning.nine_layers.network import (
    NineLayers,
    fine_tune,
    fine_tuning_gradient,
    joint_objective,
    objective,
    orthonormal,
    train_greedily,
    unit,
)
from course.learning.nine_layers.plan import (
    Geometry,
    Norm,
    Plan,
    sizes,
)

NORM = Norm(3, 1.0, 0.01)
SMALL = Plan(2, 11, Norm(3, 1.0, 0.02), (
    Geometry(4, 1, 3, 0.3, 2, 1, NORM), Geometry(3, 2, 2, 0.5, 2, 1, NORM),
    Geometry(1, 1, 2, 0.1, 1, 1, NORM),
))  # fmt: skip
BLOCKS = Plan(1, 10, None, (
    Geometry(4, 2, 2, 0.3, 2, 2, NORM, block=2), Geometry(3, 1, 2, 0.3, 1, 1),
))  # fmt: skip


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def images_for(plan, count, seed=0):
    return drawn(count, plan.channels, plan.side, plan.side, seed=seed)


def test_a_network_is_its_stages_in_a_row():
    net, images = NineLayers(SMALL, seed=0).double(), images_for(SMALL, 4)
    x = net.even(images)
    for stage, answer in zip(net.stages, net.after_each(images), strict=True):
        stage.scale = torch.tensor(2.0)
        x = stage.norm(stage.pool(stage.filters(x)))
        torch.testing.assert_close(answer, x)
    torch.testing.assert_close(net(images), net.after_each(images)[-1])
    assert not torch.allclose(net(images), x)  # divided by the scale now


def test_a_seed_decides_the_weights_and_no_two_stages_share_it():
    same = Plan(2, 3, None, 2 * (Geometry(1, 1, 2, 0, 1, 1),))
    first, again, other = (NineLayers(SMALL, seed=k).state_dict() for k in (0, 0, 7))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["stages.0.filters.weight"], other["stages.0.filters.weight"])
    below, above = NineLayers(same, seed=0).parameters()
    assert (below - above).abs().max() > 1e-3


@pytest.mark.parametrize("outputs", [1, 5, 12])
def test_filters_start_at_right_angles_with_length_one(outputs):
    filters = orthonormal(drawn(2, 3, outputs, 2, 2, 3)).flatten(3)
    identity = torch.eye(outputs, dtype=torch.float64).expand(2, 3, -1, -1)
    torch.testing.assert_close(filters @ filters.mT, identity, atol=1e-12, rtol=0)


def test_more_filters_than_inputs_start_with_length_one():
    lengths = orthonormal(drawn(2, 3, 7, 1, 2, 3)).flatten(3).norm(dim=3)
    torch.testing.assert_close(lengths, torch.ones(2, 3, 7, dtype=torch.float64))


def slow_objective(stage, x):
    """The same, window after window and pool after pool."""
    layer, pool, total = stage.filters, stage.pool, 0
    weight, x = unit(layer.weight), x / stage.scale
    rows, columns, outputs = weight.shape[:3]
    z = x.new_zeros(len(x), layer.maps, *layer.out_size)
    for row in range(rows):
        for column in range(columns):
            y, across = row * layer.stride, column * layer.stride
            seen = x[:, :, y : y + layer.field, across : across + layer.field]
            seen = seen.permute(0, 2, 3, 1).flatten(1)
            filters = weight[row, column].flatten(1)
            answers = seen @ filters.T
            total = total + (answers @ filters - seen).square().sum()
            place = [slice(k * layer.block, (k + 1) * layer.block) for k in (row, column)]
            z[:, :, place[0], place[1]] = answers.reshape(len(x), layer.maps, layer.block, -1)
    for pooled in (
        z.unfold(2, pool.field, pool.stride).unfold(3, pool.field, pool.stride).flatten(0, 3)
    ):
        total = total + stage.penalty * (0.01 + pooled.square().sum()).sqrt()
    return total / len(x)


@pytest.mark.parametrize("plan", [SMALL, BLOCKS])
def test_the_objective_is_that_of_the_formula(plan):
    stage = NineLayers(plan, seed=0).double().stages[0]
    stage.filters.weight.data = drawn(*stage.filters.weight.shape, seed=1)  # of any length
    stage.scale = torch.tensor(1.7)
    x = images_for(plan, 3)
    torch.testing.assert_close(objective(stage, x), slow_objective(stage, x))


def test_the_objective_does_not_care_for_lengths_of_filters():
    stage, x = NineLayers(SMALL, seed=0).double().stages[0], images_for(SMALL, 3)
    before = objective(stage, x)
    stage.filters.weight.data = 3 * stage.filters.weight.data
    torch.testing.assert_close(objective(stage, x), before)


def test_training_lowers_every_objective_and_keeps_lengths():
    net, images = NineLayers(SMALL, seed=0), images_for(SMALL, 60).float()
    seen = train_greedily(net, images, steps=(40, 30, 20), seed=0, batch=20)
    assert [len(each) for each in seen] == [40, 30, 20]
    assert all(each[-5:].mean() < each[:5].mean() for each in seen)
    inputs = [net.even(images), *net.after_each(images)]
    for stage, x in zip(net.stages, inputs, strict=False):
        lengths = stage.filters.weight.flatten(3).norm(dim=3)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
        torch.testing.assert_close(stage.scale, x.square().mean().sqrt())
        assert stage.filters.weight.grad is None


def test_without_a_penalty_training_finds_the_principal_components():
    """One window: what the filters span is what the first eigenvectors of the inputs span."""
    plan = Plan(1, 3, None, (Geometry(3, 1, 2, 0.0, 1, 1),))
    net, images = NineLayers(plan, seed=0).double(), images_for(plan, 200)
    images = images * torch.tensor([5, 4, 1, 1, 1, 1, 1, 1, 1.0]).reshape(3, 3)
    train_greedily(net, images, steps=(300,), seed=0)
    flat = images.flatten(1)
    principal = torch.linalg.eigh(flat.T @ flat).eigenvectors[:, -2:]
    overlap = net.stages[0].filters.weight.flatten(3)[0, 0] @ principal
    torch.testing.assert_close(
        overlap @ overlap.T, torch.eye(2, dtype=torch.float64), atol=0.03, rtol=0
    )


def test_the_same_seed_trains_the_same_network():
    nets = [NineLayers(SMALL, seed=0) for _ in range(2)]
    for net in nets:
        train_greedily(net, images_for(SMALL, 30).float(), steps=(3, 3, 3), seed=5, batch=10)
    first, again = (net.state_dict() for net in nets)
    assert all(torch.equal(first[key], again[key]) for key in first)


TINY = Plan(1, 6, NORM, (
    Geometry(3, 1, 2, 0.2, 2, 1, NORM), Geometry(2, 1, 2, 0.2, 2, 1, NORM),
    Geometry(1, 1, 2, 0.2, 1, 1, NORM),
))  # fmt: skip


def with_weights(net, loss):
    """`loss(net)` as a function of the network's weights."""
    names = [name for name, _ in net.named_parameters()]

    def of_weights(*weights):
        return torch.func.functional_call(
            Losing(net, loss), dict(zip(["net." + n for n in names], weights))
        )

    return of_weights


class Losing(torch.nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self):
        return self.loss(self.net)


def some_loss(top):
    return (top * drawn(*top.shape, seed=9)).sum()


@pytest.mark.parametrize("of", ["top", "joint"])
def test_gradients_through_nine_layers_are_those_of_differences(of):
    net, images = NineLayers(TINY, seed=0).double(), images_for(TINY, 2)
    loss = {
        "top": lambda net: some_loss(net(images)),
        "joint": lambda net: joint_objective(net, images),
    }[of]
    weights = [weight.detach().requires_grad_() for weight in net.parameters()]
    assert torch.autograd.gradcheck(with_weights(net, loss), weights, fast_mode=True)


def test_fine_tuning_takes_a_step_along_the_gradient():
    net, images = NineLayers(SMALL, seed=0).double(), images_for(SMALL, 3)
    before = [weight.detach().clone() for weight in net.parameters()]
    slopes = fine_tuning_gradient(net, images, some_loss)
    fine_tune(net, images, some_loss, 0.1)
    for weight, was, slope in zip(net.parameters(), before, slopes, strict=True):
        assert weight.grad is None
        torch.testing.assert_close(weight.detach(), was - 0.1 * slope)


def test_the_fine_tuning_gradient_leads_downhill_in_every_stage():
    net, images = NineLayers(TINY, seed=0).double(), images_for(TINY, 2)
    before, gradients = some_loss(net(images)), fine_tuning_gradient(net, images, some_loss)
    assert [g.shape for g in gradients] == [p.shape for p in net.parameters()]
    for weight, gradient in zip(net.parameters(), gradients, strict=True):
        step = 1e-6 / gradient.norm()
        weight.data -= step * gradient
        expected = step * gradient.square().sum()
        torch.testing.assert_close(before - some_loss(net(images)), expected, rtol=1e-3, atol=0)
        weight.data += step * gradient


def test_weights_below_feel_the_joint_objective_above():
    net, images = NineLayers(SMALL, seed=0).double(), images_for(SMALL, 2)
    alone = [
        objective(s, x) for s, x in zip(net.stages, [net.even(images), *net.after_each(images)])
    ]
    joint = joint_objective(net, images)
    torch.testing.assert_close(joint, sum(alone))
    first = net.stages[0].filters.weight
    (all_felt,) = torch.autograd.grad(joint, first, retain_graph=True)
    (own,) = torch.autograd.grad(alone[0], first)
    assert (all_felt - own).abs().max() > 1e-3 * own.norm()


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: sizes(Plan(1, 5, None, (Geometry(6, 1, 1, 0, 1, 1),))),
            "a window of 6 pixels does not fit on an axis of 5",
        ),
        (lambda: train(NineLayers(SMALL, 0), steps=(1, 1)), r"3 stages .* not \(1, 1\)"),
        (lambda: train(NineLayers(SMALL, 0), steps=(1, 0, 1)), "at least 1 step, not 0"),
        (lambda: train(NineLayers(SMALL, 0), by=0), "finite inputs that are not all 0"),
        (lambda: train(NineLayers(SMALL, 0), by=math.nan), "finite inputs that are not all 0"),
        (lambda: train(NineLayers(SMALL, 0), batch=9), "a batch of 9 .* from 8 samples"),
        (lambda: NineLayers(SMALL, 0)(torch.zeros(1, 1, 11, 11)), r"\[batch, 2, 11, 11\], not"),
    ],
)
def test_what_cannot_be_trained_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def train(net, steps=(1, 1, 1), by=1, batch=4):
    images = by * images_for(SMALL, 8).float()
    return train_greedily(net, images, steps=steps, seed=0, batch=batch)
