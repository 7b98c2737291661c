"""Data parallel training is the serial one: every parameter after every step, on any ranks."""

import random
import re
import sys
from collections import Counter

import pytest
import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE, Cable, Device
from course.comm import Trace
from course.parallel.data.data_parallel import DataParallel, average_buffers, average_weights
from course.worlds import RankError, run, simulated


class Net(nn.Module):
    """Tied, frozen and unused parameters, and one used in every second step alone."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.tied = nn.Linear(6, 7), nn.Linear(7, 7)
        self.frozen, self.unused = nn.Linear(7, 7), nn.Linear(3, 2)
        self.sometimes, self.last = nn.Linear(7, 7), nn.Linear(7, 2)
        self.frozen.requires_grad_(False)
        self.double()

    def forward(self, x, step):
        x = self.tied(torch.tanh(self.tied(torch.tanh(self.first(x)))))
        x = self.frozen(x)
        return self.last(self.sometimes(x) if step % 2 else x)


STEPS = 20
OPTIMIZERS = {
    "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: torch.optim.Adam(ps, 0.01),
}


def rows(step, count=11):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, 2, generator=generator, dtype=torch.float64)


def serially(optimizer, clip):
    net = Net()
    chosen = OPTIMIZERS[optimizer](net.parameters())
    for step in range(STEPS):
        x, y = rows(step)
        chosen.zero_grad(set_to_none=step % 3 > 0)
        ((net(x, step) - y) ** 2).mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        chosen.step()
    return [p.detach() for p in net.parameters()]


def on_many(comm, optimizer, clip, bucket_mb, algorithm):
    """Each rank its rows of every batch, of uneven numbers; models that begin differently."""
    net = DataParallel(Net(seed=comm.rank), comm, bucket_mb=bucket_mb, algorithm=algorithm)
    chosen = OPTIMIZERS[optimizer](net.parameters())
    for step in range(STEPS):
        x, y = (part.tensor_split(comm.size)[comm.rank] for part in rows(step))
        chosen.zero_grad(set_to_none=step % 3 > 0)
        ((net(x, step) - y) ** 2).mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        chosen.step()
    return [p.detach() for p in net.parameters()]


def required_same(results, expected):
    for rank, mine in enumerate(results):
        for a, b, first in zip(mine, expected, results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
            assert torch.equal(a, first), f"rank {rank} has drifted"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("optimizer, clip", [("momentum", False), ("adam", True)])
def test_twenty_steps_are_the_serial_ones(ranks, optimizer, clip):
    results = run(on_many, ranks, optimizer, clip, 3e-4, "ring")
    required_same(results, serially(optimizer, clip))


@pytest.mark.parametrize("bucket_mb", [1e-6, 25])
@pytest.mark.parametrize("algorithm", ["flat", "ring"])
def test_buckets_of_any_size_and_any_algorithm(bucket_mb, algorithm):
    results = run(on_many, 3, "momentum", False, bucket_mb, algorithm)
    required_same(results, serially("momentum", False))


def empty_batches(comm):
    """Of 2 rows three ranks get 1, 1 and none."""
    net = DataParallel(Net(), comm)
    x, y = (part.tensor_split(comm.size)[comm.rank] for part in rows(0, count=2))
    ((net(x, 1) - y) ** 2).mean().backward()
    return [p.grad for p in net.parameters()]


def test_a_rank_without_samples_takes_part():
    net, (x, y) = Net(), rows(0, count=2)
    ((net(x, 1) - y) ** 2).mean().backward()
    for mine in run(empty_batches, 3):
        for a, p in zip(mine, net.parameters(), strict=True):
            assert (a is None) == (p.grad is None)
            if a is not None:
                torch.testing.assert_close(a, p.grad, rtol=1e-12, atol=1e-14)


def accumulated(comm, parts):
    net = DataParallel(Net(), comm)
    micro = [part.tensor_split(parts) for part in rows(0, count=12 * comm.size)]
    mine = [(x.tensor_split(comm.size)[comm.rank], y.tensor_split(comm.size)[comm.rank])
            for x, y in zip(*micro)]  # fmt: skip
    before = comm.meter.sent_bytes
    with net.no_sync():
        for step, (x, y) in enumerate(mine[:-1], start=1):
            ((net(x, step) - y) ** 2).mean().backward()
    quiet = comm.meter.sent_bytes - before
    x, y = mine[-1]
    ((net(x, parts) - y) ** 2).mean().backward()
    return [p.grad for p in net.parameters()], quiet


@pytest.mark.parametrize("parts", [2, 3])  # of 2 the last does not use what the first has used
def test_accumulation_sends_nothing_until_the_last(parts):
    net, split = Net(), [part.tensor_split(parts) for part in rows(0, count=24)]
    for step, (x, y) in enumerate(zip(*split), start=1):
        ((net(x, step) - y) ** 2).mean().backward()
    for mine, quiet in run(accumulated, 2, parts):
        assert quiet == 0
        for a, p in zip(mine, net.parameters(), strict=True):
            assert (a is None) == (p.grad is None)
            if a is not None:
                torch.testing.assert_close(a, p.grad, rtol=1e-12, atol=1e-14)


def summed(comm):
    net = DataParallel(Net(), comm, op="sum")
    ((net(rows(0)[0], 1)) ** 2).mean().backward()
    return net.module.last.weight.grad


def test_a_sum_is_as_many_means_as_ranks():
    one, three = run(summed, 1)[0], run(summed, 3)[0]
    torch.testing.assert_close(three, 3 * one, rtol=1e-12, atol=0)


def summed_twice(comm, clear):
    net = DataParallel(Net(), comm, op="sum")
    for step in range(2):
        ((net(rows(step)[0], 1)) ** 2).mean().backward()
        if clear:
            net.zero_grad()
    return True


def test_a_sum_on_top_of_the_last_one_is_refused():
    """It would count the last one once a rank: p times too much, and nobody would notice."""
    assert run(summed_twice, 2, clear=True) == [True, True]
    assert run(summed_twice, 1, clear=False) == [True]
    rule = 'last sum over ranks, and op="sum" would count it once a rank: call zero_grad'
    with pytest.raises(RankError, match=re.escape(rule)):
        run(summed_twice, 2, clear=False)


def frozen_later(comm):
    net = DataParallel(Net(), comm)
    for step in range(3):
        if step == 1:
            net.module.first.requires_grad_(False)
        net.zero_grad()
        ((net(rows(step)[0], 1)) ** 2).mean().backward()
    return net.module.first.weight.grad, net.module.last.weight.grad is not None


def test_a_parameter_that_is_frozen_later():
    assert run(frozen_later, 2) == [(None, True)] * 2


def in_order_of_backward(comm):
    net = DataParallel(Net(), comm, bucket_mb=1e-6)
    before = [net.reducer.layout.names[p] for p in net.reducer.layout.bucket_of]
    ((net(rows(0)[0], 1)) ** 2).mean().backward()
    return before, [net.reducer.layout.names[p] for p in net.reducer.layout.bucket_of]


def test_buckets_follow_backward_from_the_second_step_on():
    for before, after in run(in_order_of_backward, 2):
        assert before[4:6] == ["unused.bias", "unused.weight"]
        assert after[-2:] == ["unused.bias", "unused.weight"] and sorted(before) == sorted(after)


class Branches(nn.Module):
    """Two branches, of which each rank goes through another one first."""

    def __init__(self, scale):
        super().__init__()
        self.left, self.right = nn.Linear(2, 2), nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x, rank):
        first, second = (self.left, self.right)[:: 1 if rank % 2 else -1]
        return second(first(x)).mean() * self.scale


def in_two_orders(comm, count):
    net = DataParallel(Branches(2.0), comm, bucket_mb=1e-6)
    for _ in range(3):
        net.zero_grad()
        net(torch.ones(count if comm.rank else 3, 2), comm.rank).backward()
    return [net.reducer.layout.names[p] for p in net.reducer.layout.bucket_of], [
        p.grad for p in net.parameters()
    ]


def test_ranks_whose_backwards_take_different_ways():
    (names, gradients), (others, same) = run(in_two_orders, 2, 3)
    assert names == others
    assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))


def test_of_no_samples_not_even_nan_counts():
    """The mean over no rows is nan, and with it what scales it gets a gradient of nan."""
    for _, gradients in run(in_two_orders, 2, 0):
        assert all(gradient.isfinite().all() for gradient in gradients)


def gradients_only(comm):
    net = DataParallel(nn.Linear(1000, 10), comm, bucket_mb=4)
    before = comm.meter.sent_bytes
    net(torch.ones(3, 1000)).sum().backward()
    return comm.meter.sent_bytes - before


def test_the_bytes_are_those_of_one_all_reduce():
    """10 010 gradients, 2 flags and 4 counts through a ring of 3; then the order of 2 numbers."""
    sent = run(gradients_only, 3)
    assert sum(sent) == 4 * (10_010 + 6) * 4 + 2 * 2 * 8


def early_buckets(comm):
    net = DataParallel(nn.Sequential(*[nn.Linear(50, 50) for _ in range(4)]), comm, bucket_mb=0.01)
    begun = []
    net.module[0].weight.register_hook(lambda g: begun.append(len(net.reducer.backward.begun)))
    net(torch.ones(2, 50)).sum().backward()
    return begun[0], len(net.reducer.layout.buckets)


def test_buckets_are_on_their_way_before_backward_is_over():
    for begun, buckets in run(early_buckets, 2):
        assert 0 < begun < buckets and begun >= 3


LAYERS = 8


def backward_s(comm, bucket_mb):
    """Seconds of the second backward of a net of equal layers, each 4 MB."""
    layers = [nn.Linear(1000, 1000, bias=False, device=comm.device) for _ in range(LAYERS)]
    net = DataParallel(nn.Sequential(*layers), comm, bucket_mb=bucket_mb, algorithm="ring")
    for _ in range(2):
        out = net(torch.empty(256, 1000, device=comm.device))
        start = comm.clock()
        out.sum().backward()
        seconds = comm.clock() - start
        net.zero_grad()
    return seconds


@pytest.mark.parametrize("bytes_per_s", [1e9, 20e9])  # the network takes longer; backward does
def test_the_network_works_behind_backward(bytes_per_s):
    """On the imagined cluster a message is there a fixed time after it was sent, whatever the ranks
    do meanwhile; the tensors have no memory."""
    device = Device("a device", 1e12, 1e15, 1e9, "made up")
    fabric = one_switch(4, device, Cable("a cable", 1e-6, bytes_per_s, "made up"))

    def seconds(ranks, bucket_mb):
        world = simulated(fabric, device="meta")
        return max(run(backward_s, ranks, bucket_mb, on=world, checked=False))

    compute = seconds(1, 100)
    communicate = seconds(4, 100) - compute  # in one bucket, after all of backward
    longer, shorter = sorted([compute, communicate], reverse=True)
    assert communicate > compute / 4
    assert seconds(4, 4) == pytest.approx(longer + shorter / LAYERS, rel=0.01)


def not_finite(comm):
    net = DataParallel(Net(), comm)
    x, _ = rows(0)
    net(x * (float("nan") if comm.rank == 1 else 1.0), 1).sum().backward()


def broken_off(comm):
    """An error in the middle of backward; then the program goes on as if nothing had been."""
    net, x = DataParallel(Net(), comm), rows(0)[0]

    def fail(gradient):
        raise ArithmeticError("in the middle")

    hook = net.module.first.weight.register_hook(fail)
    with pytest.raises(ArithmeticError, match="in the middle"):
        net(x, 1).sum().backward()
    hook.remove()
    with pytest.raises(RuntimeError, match=f"rank {comm.rank}: the last backward broke off"):
        net(x, 1)


def test_after_a_backward_that_broke_off_nothing_goes_on_in_silence():
    run(broken_off, 2)


def test_who_has_a_gradient_that_is_not_finite():
    with pytest.raises(RankError, match="FloatingPointError: gradients must be finite; these are "
                       "not: .*weight on rank 1"):  # fmt: skip
        run(not_finite, 3)


def trains(comm, stops=None, steps=6):
    """Some ranks stop early, {rank: after so many steps}."""
    net = DataParallel(Net(), comm, bucket_mb=1e-4)
    for step in range((stops or {}).get(comm.rank, steps)):
        x, y = (part.tensor_split(comm.size)[comm.rank] for part in rows(step))
        net.zero_grad()
        ((net(x, step) - y) ** 2).mean().backward()
    return comm.clock()


@pytest.mark.parametrize("on", [None, "imagined"])
def test_a_rank_that_stops_early_is_named(on):
    on = on and simulated(one_switch(3, FREE, FDR))
    with pytest.raises(RankError, match="rank 2 has returned from its function while rank") as told:
        run(trains, 3, {2: 3}, on=on)
    assert told.value.failures.keys() == {0, 1}


SLOW = one_switch(4, Device("slow", 1e6, 1e6, 1e9, "made up"), FDR)


@pytest.fixture(scope="module")
def end():
    """When training is over if nobody dies."""
    return run(trains, 4, on=simulated(SLOW))[0]


@pytest.mark.parametrize("seed", range(20))
def test_the_death_of_any_rank_at_any_time_ends_training(seed, end):
    draw = random.Random(seed)
    lost, when = draw.randrange(4), draw.uniform(0, end)
    with pytest.raises(RankError, match=f"rank {lost} died at") as told:
        run(trains, 4, on=simulated(SLOW, dead={lost: when}), timeout=end)
    assert told.value.failures.keys() == {0, 1, 2, 3}
    del told.value.failures[lost]
    for said in told.value.failures.values():  # of it, or of one that ended for its sake
        assert re.match(r"PeerLost: ranks? [\d, ]+ (was|were) lost while rank", said)


class Scaled(nn.Module):
    """The mean over its rows, scaled; over no rows it is nan, and so is the scale's gradient."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x.mean()


def not_finite_beside_no_rows(comm):
    net = DataParallel(Scaled(), comm)
    net(torch.full((1 - comm.rank, 2), float("inf"))).backward()


def test_who_has_no_samples_is_not_to_blame():
    with pytest.raises(RankError, match="these are not: .* on rank 0") as told:
        run(not_finite_beside_no_rows, 2)
    assert "on rank 1" not in str(told.value.exception)


def unlike(comm, models):
    DataParallel(models[comm.rank], comm)


@pytest.mark.parametrize(
    "models, sentence",
    [
        ((nn.Linear(3, 2), nn.Linear(3, 4)),
         r"tensor 0 is weight \(float32 \[2, 3\]\) on rank 0, and weight \(float32 \[4, 3\]\) on"),
        ((nn.Linear(3, 2), nn.Linear(3, 2, bias=False)),
         r"tensor 1 is bias \(float32 \[2\]\) on rank 0, and missing on rank 1"),
        ((nn.Linear(3, 2, bias=False), nn.Linear(3, 2)), "tensor 1 is missing on rank 0, and bias"),
        ((nn.Linear(3, 2), nn.Linear(3, 2).double()), "tensor 0 is weight .*, and weight .float64"),
    ],
)  # fmt: skip
def test_models_that_differ_are_named(models, sentence):
    with pytest.raises(RankError, match="models must be equal on all ranks: " + sentence):
        run(unlike, 2, models)


def test_numbers_that_cannot_be():
    with pytest.raises(RankError, match="a bucket holds more than 0 MB, not 0"):
        run(lambda comm: DataParallel(nn.Linear(1, 1), comm, bucket_mb=0), 1)
    with pytest.raises(RankError, match="op must be mean or sum, not 'max'"):
        run(lambda comm: DataParallel(nn.Linear(1, 1), comm, op="max"), 1)


def averaged(comm):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        for tensor in (*net.parameters(), net[1].running_mean):
            tensor.fill_(comm.rank)
    average_weights(net, comm), average_buffers(net, comm)
    return {float(x) for x in net.parameters() for x in x.flatten()} | {
        float(x) for x in net[1].running_mean
    }


def test_the_mean_of_weights_and_of_buffers():
    assert run(averaged, 4) == [{1.5}] * 4


def averaged_in_their_dtypes(comm):
    net = nn.ModuleList([nn.Linear(2, 2).bfloat16(), nn.Linear(2, 2).double(), nn.Linear(2, 2)])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_((1 + comm.rank) / 3)
    average_weights(net, comm), average_weights(nn.ReLU(), comm)
    return [parameter.flatten()[0].item() for parameter in net.parameters()]


def test_weights_are_averaged_each_in_its_dtype():
    for halves, doubles, singles in (mine[::2] for mine in run(averaged_in_their_dtypes, 2)):
        assert doubles == 0.5 and singles == pytest.approx(0.5, abs=1e-7)
        assert halves == pytest.approx(0.5, abs=4e-3)


def natively(comm):
    net, x = DataParallel(Net(), comm, algorithm="native", bucket_mb=1e-4), rows(0)[0]
    for _ in range(2):
        net.zero_grad()
        net(x.tensor_split(comm.size)[comm.rank], 1).square().mean().backward()
    return [p.grad for p in net.parameters()]


def test_the_backend_is_started_before_it_is_needed():
    net = Net()
    net(rows(0)[0], 1).square().mean().backward()
    for mine in run(natively, 2):
        for a, p in zip(mine, net.parameters(), strict=True):
            if a is not None:
                torch.testing.assert_close(a, p.grad, rtol=1e-12, atol=1e-14)


def messages_of_a_step(comm):
    """Those of the second step, in which nothing is agreed upon any more."""
    net = DataParallel(nn.Linear(1000, 10), comm)
    for _ in range(2):
        before = comm.meter.sent_messages
        net(torch.ones(3 + comm.rank, 1000)).sum().backward()
    return comm.meter.sent_messages - before


def test_a_step_sends_one_all_reduce_and_nothing_else():
    assert run(messages_of_a_step, 3) == [4] * 3


def calls_of_backward(comm, layers):
    """Python calls of the third backward with so many layers, each of two parameters."""
    net = DataParallel(nn.Sequential(*[nn.Linear(2, 2) for _ in range(layers)]), comm)
    for _ in range(3):
        loss, calls = net(torch.ones(3, 2)).sum(), Counter()
        sys.setprofile(lambda frame, event, arg, calls=calls: calls.update([event]))
        loss.backward()
        sys.setprofile(None)
    return calls["call"]


def test_a_parameter_costs_no_more_calls_than_it_did():
    few, many = (run(calls_of_backward, 1, layers)[0] for layers in (50, 100))
    assert many - few <= 13 * 100


def test_the_trace_shows_the_buckets():
    trace = Trace()
    run(on_many, 2, "momentum", False, 25, "ring", trace=trace)
    assert any(event.background for event in trace.events)
