"""Stack three stages of filtering, pooling and normalising, and train them without a label.

`NineLayers` is made from a Plan (`plan.py`); `train_greedily` trains stage after stage;
`fine_tuning_gradient` goes through all nine.
"""

import itertools

import torch
from torch import nn
from torch.nn.functional import avg_pool2d

from course.learning.convolution.local_linear import local_linear
from course.learning.nine_layers.layers import L2Pool, LocalContrastNorm, LocalLinear
from course.learning.nine_layers.plan import inputs_of_stages
from course.learning.training.descent import batches

SMOOTHING = 1e-2  # of the activity's corner at 0


class Stage(nn.Module):
    """Filters, pool and norm: x [batch, channels, side, side] -> [batch, maps, pooled, pooled].

    Inputs are divided by `scale`, their root mean square in training. Filters start with length 1
    and, where a window has no more of them than inputs, at right angles.
    """

    def __init__(self, geometry, channels, side, seed):
        super().__init__()
        field, stride, maps, self.penalty, pool, pool_stride, norm, block = geometry
        self.filters = LocalLinear(
            channels, side, field, maps, stride=stride, block=block, seed=seed
        )
        self.pool = L2Pool(pool, pool_stride)
        self.norm = LocalContrastNorm(*norm) if norm else nn.Identity()
        self.register_buffer("scale", torch.ones(()))
        if not self.filters.weight.is_meta:
            self.filters.weight.data = orthonormal(self.filters.weight.data)

    def forward(self, x):
        return self.norm(self.pool(self.filters(x / self.scale)))


class NineLayers(nn.Module):
    """The stages of a Plan in a row: images [batch, channels, side, side] -> the top neurons.

    Not trained yet, it is the papers' random network. Each stage has a seed of its own.
    """

    def __init__(self, plan, seed):
        super().__init__()
        self.even = LocalContrastNorm(*plan.even) if plan.even else nn.Identity()
        stages = enumerate(inputs_of_stages(plan), seed)
        self.stages = nn.ModuleList(Stage(*inputs, number) for number, inputs in stages)

    def forward(self, images):
        return self.after_each(images)[-1]

    def after_each(self, images):
        """What each stage answers, a list of [batch, maps, pooled, pooled]; the last is the top."""
        answers = [self.even(images)]
        for stage in self.stages:
            answers.append(stage(answers[-1]))
        return answers[1:]


def train_greedily(net, images, *, steps, seed, batch=50, rate=0.01):
    """Train a NineLayers in place, stage after stage, on `images` [count, channels, side, side].

    `steps` has a number for each stage. Returns what the objective was in every step, a list of
    [steps] for each stage. Adam, whose rate falls to 5 % along half a cosine.
    """
    if len(steps) != len(net.stages):
        raise ValueError(f"{len(net.stages)} stages need as many numbers of steps, not {steps}")
    inputs, objectives = net.even(images), []
    for stage, count in zip(net.stages, steps, strict=True):
        objectives.append(train_stage(stage, inputs, count, seed, batch, rate))
        with torch.no_grad():
            inputs = torch.cat([stage(part) for part in inputs.split(256)])
    return objectives


def train_stage(stage, inputs, steps, seed, batch, rate):
    """Train one Stage on `inputs` [count, channels, side, side]; returns objectives [steps]."""
    if not (inputs.isfinite().all() and inputs.square().mean() > 0):
        raise ValueError("a stage learns from finite inputs that are not all 0")
    if steps < 1:
        raise ValueError(f"a stage is trained for at least 1 step, not {steps}")
    stage.scale = inputs.square().mean().sqrt()
    weight, seen = stage.filters.weight, []
    optimizer = torch.optim.Adam([weight], rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate * 0.05)
    for rows in itertools.islice(batches(len(inputs), batch, seed), steps):
        value = objective(stage, inputs[rows])
        (weight.grad,) = torch.autograd.grad(value, [weight])
        optimizer.step()
        schedule.step()
        seen.append(value.detach())
    weight.data, weight.grad = unit(weight.data), None
    return torch.stack(seen)


def objective(stage, x):
    """How badly a Stage codes x [batch, channels, side, side], a mean over the batch.

    The sum over windows of |W^T W x - x|^2, each window by itself, plus penalty times the sum over
    pools of sqrt(0.01 + energy); the filters W are taken at length 1.
    Source: Le et al. 2012 (RICA with pools); Coates et al. 2013 (tied, unit length).
    """
    layer, x = stage.filters, x / stage.scale
    weight = unit(layer.weight)
    z = local_linear(x, weight, stride=layer.stride, block=layer.block)
    shown = avg_pool2d(x.square(), layer.field, layer.stride, divisor_override=1).sum()
    # |W^T W x - x|^2 = |x|^2 - 2 |z|^2 + z^T (W W^T) z: no window is built again.
    filters, answers = weight.flatten(3), _by_window(z, layer.block)
    missed = shown - 2 * z.square().sum() + (answers * (filters @ filters.mT @ answers)).sum()
    activity = L2Pool(stage.pool.field, stage.pool.stride, SMOOTHING)(z).sum()
    return (missed + stage.penalty * activity) / len(x)


def joint_objective(net, images):
    """The sum of all stages' objectives on `images`, to be differentiated through what is below.

    Le et al. 2012 train all stages at once on it; the weights below feel the objectives above.
    """
    answers = [net.even(images), *net.after_each(images)]
    return sum(objective(stage, x) for stage, x in zip(net.stages, answers, strict=False))


def fine_tuning_gradient(net, images, loss):
    """The gradient of `loss(top)` in every weight of the network: a list like `net.parameters()`.

    Forward and backward through all nine layers, the most demanding step of Coates et al. 2013.
    They do not print the loss on top; what it is does not change what the step costs.
    """
    return list(torch.autograd.grad(loss(net(images)), list(net.parameters())))


def fine_tune(net, images, loss, rate):
    """One step of plain gradient descent through all nine layers, in place."""
    slopes = fine_tuning_gradient(net, images, loss)
    with torch.no_grad():
        for weight, slope in zip(net.parameters(), slopes, strict=True):
            weight.sub_(slope, alpha=rate)


def unit(weight):
    """`weight` [rows, columns, outputs, field, field, channels] with filters of length 1."""
    return weight / weight.square().sum(dim=(3, 4, 5), keepdim=True).sqrt()


def orthonormal(weight):
    """`weight` with filters of length 1, at right angles in each window if there is room."""
    filters = weight.flatten(3)  # [rows, columns, outputs, inputs]
    if filters.shape[2] > filters.shape[3]:
        return unit(weight)
    return torch.linalg.qr(filters.mT).Q.mT.reshape(weight.shape).contiguous()


def _by_window(z, block):
    """[batch, maps, rows * block, columns * block] -> [rows, columns, outputs, batch]."""
    squares = z.unflatten(3, (-1, block)).unflatten(2, (-1, block))
    return squares.permute(2, 4, 1, 3, 5, 0).flatten(2, 4)
