import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from course.collectives import all_reduce
from course.parallel.data.buckets import Bucket
from course.parallel.data.compression import OneBit, PowerSGD, TopK, sign_means
from course.parallel.data.data_parallel import DataParallel
from course.worlds import RankError, run


def filled(*gradients):
    """A bucket that holds these gradients, and its parameters."""
    parameters = [nn.Parameter(torch.zeros(len(g), *torch.tensor(g).shape[1:])) for g in gradients]
    bucket = Bucket(parameters)
    for parameter, gradient in zip(parameters, gradients):
        bucket.view(parameter).copy_(torch.tensor(gradient))
    return bucket, parameters


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
        bucket.tail.fill_(1.0)
        hook(comm, bucket)
        given += gradient
        estimated += bucket.values
        assert bucket.tail.tolist() == [comm.size] * 3
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


def metered(comm, hook, shape):
    bucket = Bucket([nn.Parameter(torch.zeros(shape))])
    before = comm.meter.sent_bytes
    bucket.values.normal_()
    hook(comm, bucket)
    return comm.meter.sent_bytes - before


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (OneBit(), 64 * 48 // 8 + 8),  # a bit a number, two means
        (TopK(0.01), 31 * 8),  # 31 numbers, 31 indices
        (PowerSGD(rank=2), (64 * 2 + 48 * 2) * 4 + 8),  # two thin matrices (and the tail)
        (None, 64 * 48 * 4 + 8),
    ],
)
def test_the_bytes_on_two_ranks(hook, expected):
    def step(comm):
        plainly = hook or (lambda comm, bucket: all_reduce(comm, bucket.flat))
        return metered(comm, plainly, (64, 48))

    tail = 8 if isinstance(hook, OneBit | TopK) else 0
    assert sum(run(step, 2)) == 2 * (expected + tail)


def learn(comm, name, steps):
    """The losses of a small net on handwritten digits, and its parameters."""
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    net = DataParallel(net, comm, hook=HOOKS[name]() if name else None)
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.2), []
    for step in range(steps):
        rows = torch.arange(step * 64, step * 64 + 64) % len(x)
        rows = rows.tensor_split(comm.size)[comm.rank]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        losses = nn.functional.cross_entropy(net.module(x), y).item()
    return losses, [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("name", HOOKS)
def test_real_images_are_learned_as_well_as_without(name):
    plain = run(learn, 2, None, 300)[0][0]
    (loss, mine), (_, theirs) = run(learn, 2, name, 300)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert plain < 0.35 and loss < 1.25 * plain


@pytest.mark.parametrize("fraction", [0, 1.5, float("nan")])
def test_a_fraction_that_cannot_be(fraction):
    with pytest.raises(ValueError, match=f"above 0 and is at most 1, not {fraction}$"):
        TopK(fraction)


def test_a_gradient_of_nothing_is_told():
    def step(comm):
        net = DataParallel(nn.Linear(3, 2), comm, hook=OneBit())
        (net(torch.ones(2, 3)) * (float("inf") if comm.rank else 1.0)).sum().backward()

    with pytest.raises(RankError, match="not so that of .* on rank 1"):
        run(step, 2)
