import functools

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, GTX_680
from course.collectives import all_reduce
from course.parallel.data.averaging import Averaging
from course.parallel.data.buckets import COUNTS, Bucket
from course.parallel.data.compression import (
    OneBit,
    PowerSGD,
    TopK,
    pack_bits,
    sign_means,
    unpack_bits,
)
from course.parallel.data.data_parallel import DataParallel
from course.worlds import RankError, run, simulated
from tests.worlds.simulator.clusters import switched


def filled(*gradients):
    """A bucket that holds these gradients, and its parameters."""
    parameters = [nn.Parameter(torch.zeros(len(g), *torch.tensor(g).shape[1:])) for g in gradients]
    bucket = Bucket(parameters)
    for parameter, gradient in zip(parameters, gradients):
        bucket.view(parameter).copy_(torch.tensor(gradient))
    return all_in_use(bucket), parameters


def all_in_use(bucket):
    bucket.tail.fill_(1.0)
    bucket.read_totals()
    return bucket


def close(x, expected, **tolerance):
    torch.testing.assert_close(x, torch.tensor(expected), **tolerance)


# Golden traces, on one rank


def test_one_bit_and_what_it_leaves():
    def once(comm):
        hook, (bucket, (x,)) = OneBit(), filled([0.5, -0.2, 0.1, -0.9])
        hook(comm, bucket)
        return bucket.values, hook.residual[x]

    values, left = run(once, 1)[0]
    close(values, [0.3, -0.55, 0.3, -0.55])
    close(left, [0.2, 0.35, -0.2, -0.35])


def test_the_means_of_either_sign():
    close(sign_means(torch.tensor([1.0, 3.0])), [2.0, 0.0])
    close(sign_means(torch.tensor([[-1.0, 0.0]])), [0.0, -0.5])
    close(sign_means(torch.tensor([])), [0.0, 0.0])


def test_top_k_gathers_velocity():
    """m = 0.9 and gradients of 1: (u, v) = (1, 1), then (1.9, 2.9); a larger number is sent."""

    def twice(comm):
        hook, (bucket, (x,)) = TopK(0.5, momentum=0.9), filled([1.0, 5.0])
        hook(comm, bucket)
        first = bucket.values.clone(), hook.velocity[x].clone(), hook.accumulated[x].clone()
        bucket.view(x).copy_(torch.tensor([1.0, 5.0]))
        hook(comm, bucket)
        return first, (bucket.values, hook.velocity[x], hook.accumulated[x])

    first, second = run(twice, 1)[0]
    for got, expected in zip(first, [[0.0, 5.0], [1.0, 0.0], [1.0, 0.0]]):
        close(got, expected)
    for got, expected in zip(second, [[0.0, 5.0], [1.9, 0.0], [2.9, 0.0]]):
        close(got, expected)


def test_a_step_of_power_iteration():
    def once(comm):
        hook, (bucket, (x,)) = PowerSGD(rank=1), filled([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        hook.bases[x] = torch.tensor([[1.0], [0.0]])
        hook(comm, bucket)
        return bucket.view(x).clone(), hook.bases[x], hook.residual[x]

    estimate, basis, left = run(once, 1)[0]
    p, q = torch.tensor([0.16903, 0.50709, 0.84515]), torch.tensor([5.91608, 7.43736])
    torch.testing.assert_close(estimate, torch.outer(p, q), rtol=1e-4, atol=1e-4)
    assert basis.flatten().abs().tolist() == pytest.approx(q.tolist(), abs=1e-4)
    assert left.norm().item() == pytest.approx(0.82808, abs=1e-5)


# On many ranks


HOOKS = {
    "one bit": lambda: OneBit(),
    "top k": lambda: TopK(0.1, momentum=0.0),
    "power": lambda: PowerSGD(rank=1),
}


def sums_over_time(comm, name, steps):
    """All that was ever estimated, and all that was ever given and is not left."""
    hook, (bucket, parameters) = HOOKS[name](), filled([[0.0] * 5] * 7, [0.0] * 3)
    generator = torch.Generator().manual_seed(comm.rank)
    given, estimated = torch.zeros(38), torch.zeros(38)
    for _ in range(steps):
        gradient = torch.randn(38, generator=generator)
        bucket.values.copy_(gradient)
        hook(comm, bucket)
        given += gradient
        estimated += bucket.values
    left = getattr(hook, "accumulated", None) or hook.residual
    left = torch.cat([left.get(p, torch.zeros_like(p)).flatten() for p in parameters])
    return estimated, given - left


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_nothing_is_lost(name, ranks):
    """What all ranks estimated together is what they gave but for what they still keep."""
    results = run(sums_over_time, ranks, name, 5)
    total = sum(sent for _, sent in results)
    for estimated, _ in results:
        assert torch.equal(estimated, results[0][0])
        torch.testing.assert_close(estimated, total, rtol=1e-4, atol=1e-4)


def metered(comm, hook):
    """Bytes and messages that a bucket of a matrix [64, 48] costs."""
    parameter = nn.Parameter(torch.zeros(64, 48))
    bucket = Bucket([parameter], wide=True)
    parameter.grad = torch.randn(64, 48)
    bucket.fill(parameter)
    bucket.finalize(1.0, 2.0, 0.0, 0.0)
    before = comm.meter.sent_bytes
    Averaging(hook=hook)(comm, bucket)
    return comm.meter.sent_bytes - before


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (OneBit(), 64 * 48 // 8 + 8),  # a bit a number, two means
        (TopK(0.01), 31 * 8),  # 31 numbers, 31 indices
        (PowerSGD(rank=2), (64 * 2 + 48 * 2) * 4),  # two thin matrices
        (None, 64 * 48 * 4),
    ],
)
def test_the_bytes_on_two_ranks(hook, expected):
    tail = (1 + COUNTS) * 4
    assert sum(run(metered, 2, hook, on=switched(2))) == 2 * (expected + tail)


def learn(comm, name, x, y, steps):
    """The loss of a small net on these images, and its parameters."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    net = DataParallel(net, comm, hook=HOOKS[name]() if name else None)
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    for step in range(steps):
        rows = torch.arange(step * 64, step * 64 + 64) % len(x)
        rows = rows.tensor_split(comm.size)[comm.rank]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net.module(x), y).item()
    return loss, [p.detach() for p in net.parameters()]


@functools.cache
def digits():
    """Handwritten ones, and what they are."""
    data = load_digits()
    return torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)


@functools.cache
def plain():
    """The loss without a hook, for all of them."""
    return run(learn, 2, None, *digits(), 300)[0][0]


@pytest.mark.parametrize("name", HOOKS)
def test_real_images_are_learned_as_well_as_without(name):
    (loss, mine), (_, theirs) = run(learn, 2, name, *digits(), 300)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert plain() < 0.35 and loss < 1.25 * plain()


@pytest.mark.parametrize("fraction", [0, 1.5, float("nan")])
def test_a_fraction_that_cannot_be(fraction):
    with pytest.raises(ValueError, match=f"above 0 and is at most 1, not {fraction}$"):
        TopK(fraction)


def test_a_gradient_of_nothing_is_told():
    def step(comm):
        net = DataParallel(nn.Linear(3, 2), comm, hook=OneBit())
        (net(torch.ones(2, 3)) * (float("inf") if comm.rank else 1.0)).sum().backward()

    with pytest.raises(RankError, match="these are not: .* on rank 1"):
        run(step, 2)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000])
def test_flags_are_packed_eight_in_a_byte(n):
    flags = torch.rand(n, generator=torch.Generator().manual_seed(n)) > 0.5
    packed = pack_bits(flags)
    assert packed.dtype == torch.uint8 and len(packed) == -(-n // 8)
    assert torch.equal(unpack_bits(packed, n), flags)


# What is kept


def in_batches(comm, name, sizes):
    """The norms of the gradients that are handed out, of batches of so many rows a rank."""
    torch.manual_seed(0)
    net = DataParallel(nn.Linear(20, 20, bias=False).double(), comm, hook=HOOKS[name]())
    generator, norms = torch.Generator().manual_seed(3 + comm.rank), []
    target = torch.eye(20, dtype=torch.float64)
    for size in sizes:
        x = torch.randn(size, 20, generator=generator, dtype=torch.float64)
        net.zero_grad()
        (net(x) - x @ target).square().sum(1).mean().backward()
        norms.append(net.module.weight.grad.norm().item())
    return norms


@pytest.mark.parametrize("name", HOOKS)
def test_a_small_batch_does_not_multiply_what_was_left_out(name):
    """It was kept in units of samples times gradient: 50 times the gradient after 64 rows."""
    even, last = (run(in_batches, 2, name, [64] * 5 + [n], on=switched(2))[0] for n in (64, 1))
    assert last[-1] < 5 * max(even)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = (nn.Linear(8, 8, bias=False).double() for _ in range(2))

    def forward(self, x, both):
        return self.a(x) + (self.b(x) if both else 0)


def every_second_step(comm, name):
    """Relative error of all that `b` was given and is owed, of all its true gradients."""
    hook = HOOKS[name]()
    net, generator = DataParallel(TwoLayers(), comm, hook=hook), torch.Generator().manual_seed(7)
    weight = net.module.b.weight
    given, true = torch.zeros_like(weight), torch.zeros_like(weight)
    for step in range(12):
        x = torch.randn(4 + 4 * (step % 3), 8, generator=generator, dtype=torch.float64)
        net.zero_grad()
        net(x.tensor_split(comm.size)[comm.rank], step % 2 == 0).square().mean().backward()
        if weight.grad is not None:
            given += weight.grad
            true += torch.autograd.grad(net.module(x, True).square().mean(), weight)[0]
    owed = getattr(hook, "accumulated", None) or hook.residual
    owed = owed[weight].clone()
    all_reduce(comm, owed)
    return ((given + owed.view_as(weight) - true).norm() / true.norm()).item()


@pytest.mark.parametrize("name", HOOKS)
def test_nothing_is_lost_while_a_parameter_rests(name):
    assert run(every_second_step, 2, name, on=switched(2))[0] < 1e-12


def poisoned(comm, name):
    """The gradients of steps of which one is skipped, since a rank's numbers were not finite."""
    net, told = DataParallel(TwoLayers(), comm, hook=HOOKS[name]()), []
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(comm.rank), dtype=torch.float64)
    for step in range(4):
        net.zero_grad()
        bad = float("nan") if (comm.rank, step) == (1, 1) else 1.0
        try:
            net(x * bad, True).square().mean().backward()
        except FloatingPointError as error:
            told.append((step, str(error)))
    return told, [p.grad for p in net.parameters()]


@pytest.mark.parametrize("name", HOOKS)
def test_a_batch_that_is_not_finite_is_not_remembered(name):
    for told, gradients in run(poisoned, 2, name, on=switched(2)):
        ((step, sentence),) = told
        assert step == 1 and "on rank 1" in sentence and "on rank 0" not in sentence
        assert all(gradient.isfinite().all() for gradient in gradients)


def in_halves(comm, name, dtype):
    """Relative error of the mean of 40 estimates of one gradient."""
    hook, weight = HOOKS[name](), nn.Parameter(torch.zeros(8, 8, dtype=dtype))
    layer = nn.Linear(8, 8, bias=False)
    layer.weight = weight
    net, total = DataParallel(layer, comm, hook=hook), torch.zeros(8, 8)
    x = torch.rand(100, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    for _ in range(40):
        net.zero_grad()
        (net(x).float() - x.float()).square().mean().backward()
        total += weight.grad.float() / 40
    (own,) = torch.autograd.grad((net.module(x).float() - x.float()).square().mean(), weight)
    return ((total - own.float()).norm() / own.float().norm()).item()


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(name, dtype):
    assert run(in_halves, 2, name, dtype, on=switched(2))[0] < 0.2


def complexly(comm, name):
    torch.manual_seed(0)
    net = DataParallel(nn.Linear(8, 8, dtype=torch.complex64), comm, hook=HOOKS[name]())
    net(torch.ones(4, 8, dtype=torch.complex64) * 1j).abs().square().mean().backward()
    return [p.grad for p in net.parameters()]


@pytest.mark.parametrize("name", HOOKS)
def test_complex_numbers_are_estimated_as_pairs(name):
    one, two = run(complexly, 2, name, on=switched(2))
    assert all(torch.equal(a, b) and a.is_complex() for a, b in zip(one, two, strict=True))


def imagined(comm, name):
    device = comm.device
    net = DataParallel(nn.Linear(1000, 1000, device=device), comm, hook=HOOKS[name]())
    before = comm.meter.sent_bytes
    for _ in range(2):
        net.zero_grad()
        net(torch.empty(8, 1000, device=device)).sum().backward()
    return comm.clock(), comm.meter.sent_bytes - before


@pytest.mark.parametrize("name", HOOKS)
def test_tensors_without_memory(name):
    world = simulated(one_switch(4, GTX_680, FDR), device="meta")
    for seconds, sent_bytes in run(imagined, 4, name, on=world):
        assert seconds > 0 and 0 < sent_bytes < 2 * 2 * 1_001_000 * 4 * 3 / 4


def interrupted(comm, name, stop):
    """The gradients of the last of 6 steps; `stop`: with all that is kept saved after three."""
    hook, x = HOOKS[name](), torch.randn(4, 8, dtype=torch.float64)
    net = DataParallel(TwoLayers(), comm, hook=hook)
    for step in range(6):
        if stop and step == 3:
            state, hook = hook.state_dict(net.module), HOOKS[name]()
            net = DataParallel(TwoLayers(), comm, hook=hook)
            hook.load_state_dict(state, net.module)
        net.zero_grad()
        net(x * (1 + step), True).square().mean().backward()
    return [p.grad for p in net.parameters()]


@pytest.mark.parametrize("name", HOOKS)
def test_what_is_kept_can_be_saved(name):
    went_on, began_anew = (
        run(interrupted, 2, name, stop, on=switched(2)) for stop in (False, True)
    )
    for mine, theirs in zip(went_on, began_anew, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_what_is_kept_of_another_model_is_refused():
    state = {"residual": {"a.weight": torch.zeros(3)}}
    with pytest.raises(ValueError, match="residual is kept of a.weight, which the model has not"):
        OneBit().load_state_dict(state, nn.Linear(2, 2))
