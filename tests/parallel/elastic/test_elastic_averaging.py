"""Elastic averaging is the serial recursion with all workers in one process: every parameter."""

import functools
import os
import random
import warnings

import pytest
import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_1G, ETHERNET_10G, FDR, GTX_680
from course.collectives import all_gather, all_reduce, cost
from course.comm import Trace
from course.parallel.data.data_parallel import DataParallel
from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.elastic.elastic_averaging import ElasticAveraging
from course.parallel.elastic.served_centre import ServedCentre, overhead_s, serve_centre
from course.parallel.flat_parameters import broadcast_module
from course.parallel.gossip.gossip import DecentralisedSGD
from course.parallel.gossip.topology import metropolis, ring_graph
from course.worlds import RankError, run, simulated
from tests.parallel.gossip.test_gossip import RATE, STEPS, Fit, rows, trained

RING = functools.partial(all_reduce, algorithm="ring")


class Number(nn.Module):
    """A model of one parameter, x."""

    def __init__(self, x=0.0):
        super().__init__()
        self.x = nn.Parameter(torch.tensor([x], dtype=torch.float64))


def imagined(ranks, cable=FDR, **options):
    return simulated(one_switch(ranks, GTX_680, cable), **options)


def seconds_a_gradient(operation, flops, nbytes, device):
    """One operation of each gradient takes all of its time: the first layer's."""
    return 1e-3 if operation == "addmm" else 0.0


# Together: the serial recursion


def learn(elastic, net, rank, steps=STEPS):
    for step in range(steps):
        net.zero_grad()
        net.losses(*rows(rank, step)).backward()
        elastic.step(RATE)


def synchronously(comm, centres, options):
    """For each kind of centre: this worker's x, the centre in the end."""
    ends = []
    for centre in centres:
        net = Fit(seed=comm.rank)
        elastic = ElasticAveraging(net, SynchronousCentre(comm, **centre), **options)
        learn(elastic, net, comm.rank)
        x = trained(net) - elastic.momentum * elastic.velocity
        ends.append(torch.stack([x, elastic.finish()]))
        with elastic.at_centre():
            assert torch.equal(trained(net), ends[-1][1])
        assert not torch.equal(trained(net), ends[-1][1]) or not elastic.steps
    return torch.stack(ends)


def gradient(net, at, batch):
    """That of `net` [elements] with the weights `at` [elements]."""
    wanted = [p for p in net.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(at, wanted)
    found = torch.autograd.grad(net.losses(*batch), wanted,
                                allow_unused=True, materialize_grads=True)  # fmt: skip
    return torch.cat([g.flatten() for g in found])


def serially(workers, *, alpha, tau=10, momentum=0.0, order="before", steps=STEPS):
    """Workers' x [workers, elements] and the centre [elements], all in one process."""
    net, x = Fit(), trained(Fit()).repeat(workers, 1)
    v, c = torch.zeros_like(x), x[0].clone()
    for step in range(steps):
        force = alpha * (x - c) if order == "before" and step % tau == 0 else 0 * x
        gradients = [gradient(net, x[worker] + momentum * v[worker], rows(worker, step))
                     for worker in range(workers)]  # fmt: skip
        v = momentum * v - RATE * torch.stack(gradients)
        x = x + v - force
        if order == "after" and (step + 1) % tau == 0:
            force = alpha * (x - c)
            x = x - force
        c = c + force.sum(dim=0)
    return x, c


FORMS = {
    "every step": {"alpha": 0.2, "tau": 1},
    "every third, with momentum": {"alpha": 0.2, "tau": 3, "momentum": 0.9},
    "after the step": {"alpha": 0.2, "tau": 4, "momentum": 0.5, "order": "after"},
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("form", FORMS)
def test_twenty_steps_are_the_serial_ones_wherever_the_centre_is(ranks, form):
    centres = [{}, {"server": ranks - 1}]
    results = run(synchronously, ranks, centres, FORMS[form])
    x, c = serially(ranks, **FORMS[form])
    for rank, ends in enumerate(results):
        for end, first in zip(ends, results[0]):
            torch.testing.assert_close(end[0], x[rank], rtol=0, atol=1e-12)
            torch.testing.assert_close(end[1], c, rtol=0, atol=1e-12)
            assert torch.equal(end[1], first[1]), f"the centre of rank {rank} has drifted"


def test_three_ways_to_say_how_stiff():
    said = [{"alpha": 0.2}, {"rho": 0.2 / RATE}, {"beta": 0.6}]
    same = [run(synchronously, 3, [{}], spring | {"tau": 2}, on=imagined(3)) for spring in said]
    for one in same:
        for a, b in zip(one, same[0]):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def with_optimiser(comm, momentum):
    net = Fit()
    elastic = ElasticAveraging(net, SynchronousCentre(comm), alpha=0.2, tau=3)
    chosen = torch.optim.SGD(net.parameters(), RATE, momentum=momentum)
    for step in range(STEPS):
        net.zero_grad()
        net.losses(*rows(comm.rank, step)).backward()
        elastic.step(chosen)
    return trained(net)


def test_an_optimiser_may_take_the_step():
    plain, moved = (run(with_optimiser, 2, m, on=imagined(2)) for m in (0.0, 0.9))
    expected = serially(2, alpha=0.2, tau=3)[0]
    torch.testing.assert_close(torch.stack(plain), expected, rtol=0, atol=1e-12)
    assert not torch.allclose(torch.stack(moved), expected, rtol=0, atol=1e-3)


# Published numbers


def scalars(comm, starts, momentum, server):
    """x, v and c after each of three steps on x^2 / 2, from `starts` around a centre at 0."""
    net = Number()
    centre = SynchronousCentre(comm, server=server)
    elastic = ElasticAveraging(net, centre, alpha=0.2, tau=1, momentum=momentum)
    net.x.data.fill_(starts[comm.rank])
    told = []
    for _ in range(3):
        net.zero_grad()
        (net.x**2 / 2).sum().backward()
        elastic.step(0.1)
        x = elastic.weights.flat - momentum * elastic.velocity
        told += [x.item(), elastic.velocity.item(), centre.cached().item()]
    return told


@pytest.mark.parametrize("server", [None, 1])
def test_two_workers_on_a_bowl(server):
    """The paper's synchronous order: the force is that on x before the step."""
    one, other = run(scalars, 2, [1.0, 3.0], 0.0, server)
    assert one[0::3] == pytest.approx([0.7, 0.65, 0.663], abs=1e-12)
    assert other[0::3] == pytest.approx([2.1, 1.63, 1.349], abs=1e-12)
    assert one[2::3] == other[2::3] == pytest.approx([0.8, 1.04, 1.08], abs=1e-12)


def test_one_worker_with_momentum_on_a_bowl():
    expected = [0.7, -0.1, 0.2, 0.449, -0.151, 0.3, 0.25199, -0.16721, 0.3298]
    assert run(scalars, 1, [1.0], 0.9, None)[0] == pytest.approx(expected, abs=1e-12)


def by_turns(comm, alpha, tau, steps):
    """x after each step with gradient -1 and rate 1; each worker goes when the one before has gone;
    the last rank keeps the centre."""
    last, turn, told = comm.size - 1, torch.zeros(1), []
    if comm.rank == last:
        return serve_centre(comm, Number(), [last]).tolist()
    net = Number()
    elastic = ElasticAveraging(net, ServedCentre(comm, [last]), alpha=alpha, tau=tau, order="after")
    if comm.rank > 0:
        comm.recv(turn, comm.rank - 1)
    for _ in range(steps):
        net.x.grad = torch.full((1,), -1.0, dtype=torch.float64)
        elastic.step(1.0)
        told.append(net.x.item())
    elastic.centre.cached()
    if comm.rank + 1 < last:
        comm.send(turn, comm.rank + 1)
    return told + elastic.finish().tolist()


def test_the_order_of_tensorflow():
    """The published test of its ElasticAverageOptimizer: asynchronous, the force after the step."""
    assert run(by_turns, 2, 1.0, 2, 3) == [[1.0, 0.0, 1.0, 2.0], [2.0]]
    assert run(by_turns, 3, 0.5, 1, 1) == [[0.5, 0.75], [0.75, 0.75], [0.75]]


# Copies that drift


def own_first(comm, x):
    """A sum whose order of adding, and so its rounding, is each rank's own."""
    parts = [torch.empty_like(x) for _ in range(comm.size)]
    all_gather(comm, parts, x)
    for other in range(1, comm.size):
        x += parts[(comm.rank + other) % comm.size]


def drifting(comm, reduce, resync_every):
    net = Fit().float()
    centre = SynchronousCentre(comm, reduce=reduce, resync_every=resync_every)
    elastic = ElasticAveraging(net, centre, beta=0.9, tau=1)
    for step in range(STEPS):
        net.zero_grad()
        x, y = rows(comm.rank, step)
        net.losses(x.float(), y.float()).backward()
        elastic.step(RATE)
    return elastic.finish()


def test_copies_drift_if_sums_differ_in_rounding_until_synchronised_again():
    def drift(*case):
        copies = torch.stack(run(drifting, 4, *case, on=imagined(4)))
        return float((copies - copies[0]).abs().max())

    assert drift(RING, None) == drift(all_reduce, None) == 0
    assert 0 < drift(own_first, None) < 1e-6
    assert drift(own_first, 7) > 0  # six meetings ago
    assert drift(own_first, 5) == 0


# What it costs


def started(p, make=Fit):
    """What the ranks send until all have the same model."""
    trace = Trace()
    run(lambda comm: broadcast_module(comm, make()), p, trace=trace, on=imagined(p))
    return trace.sent_bytes


@pytest.mark.parametrize("tau, meetings", [(1, 20), (10, 2), (7, 3)])
def test_bytes_are_those_of_an_all_reduce_every_tau_steps(tau, meetings):
    n, options = trained(Fit()).numel(), {"alpha": 0.1, "tau": tau}
    each = {"all": cost.ring_all_reduce(4, n, 8), "one": cost.reduce(4, 8 * n, 2)}
    each["one"] = each["one"].then(cost.broadcast(4, 8 * n, 2))
    for form, centre in (("all", {"reduce": RING}), ("one", {"server": 2})):
        trace = Trace()
        run(synchronously, 4, [centre], options, trace=trace, on=imagined(4))
        sent = [meetings * nbytes for nbytes in each[form].sent_bytes]
        assert trace.sent_bytes == [a + b for a, b in zip(started(4), sent)]


def asynchronously(comm, servers, options, steps=STEPS):
    net = Fit(seed=comm.rank)
    if comm.rank in servers:
        return serve_centre(comm, net, servers), comm.clock()
    elastic = ElasticAveraging(net, ServedCentre(comm, servers), **options)
    learn(elastic, net, comm.rank, steps)
    end, x = comm.clock(), trained(net) - elastic.momentum * elastic.velocity
    return x, elastic.finish(), end


def test_bytes_to_and_from_servers():
    trace, n, word = Trace(), trained(Fit()).nbytes, 8
    run(asynchronously, 5, [0, 3], {"alpha": 0.1, "tau": 10}, trace=trace, on=imagined(5))
    worker = 2 * (n + 2 * 2 * word) + 2 * word  # two meetings, each asks and gives; done
    shards = [trained(Fit())[part].nbytes for part in (slice(0, 22), slice(22, None))]
    server = [3 * (2 + 1) * part for part in shards]  # to three workers: two answers, the last
    sent = [server[0], worker, worker, server[1], worker]
    assert trace.sent_bytes == [a + b for a, b in zip(started(5), sent)]


# Each when it likes


def replayed(slowness, root, *, alpha, tau, momentum=0.0, prefetch=0):
    """What workers {rank: seconds of a step} and a centre do whose messages take no time: their x
    [elements] by rank, the centre [elements]."""
    net = Fit(seed=root)
    c = trained(net)
    x, v = dict.fromkeys(slowness, c), dict.fromkeys(slowness, 0 * c)
    asked = dict.fromkeys(slowness, c if prefetch == 1 else None)
    turns = sorted(((n + 1) * s, rank, n) for rank, s in slowness.items() for n in range(STEPS))
    for _, rank, step in turns:
        slope, force = gradient(net, x[rank] + momentum * v[rank], rows(rank, step)), 0
        if step % tau == 0:
            force = alpha * (x[rank] - (c if asked[rank] is None else asked[rank]))
            c, asked[rank] = c + force, None
        v[rank] = momentum * v[rank] - RATE * slope
        x[rank] = x[rank] + v[rank] - force
        if prefetch and (step + prefetch) % tau == 0:
            asked[rank] = c
    return x, c


@pytest.mark.parametrize("prefetch", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "servers, slow", [([1], {0: 1.0, 2: 1.37, 3: 2.11}), ([3, 0], {1: 1, 2: 1.7})]
)
def test_workers_of_different_speed_are_a_replay_with_a_centre_as_old_as_asked(
    servers, slow, prefetch
):
    options = {"alpha": 0.2, "tau": 4, "momentum": 0.5, "prefetch": prefetch}
    world = imagined(4, charge=seconds_a_gradient, slow=slow)
    results = run(asynchronously, 4, servers, options, on=world)
    x, c = replayed(slow, servers[0], **options)
    for rank in slow:
        torch.testing.assert_close(results[rank][0], x[rank], rtol=0, atol=1e-12)
        torch.testing.assert_close(results[rank][1], c, rtol=0, atol=1e-12)
    shards = torch.cat([results[server][0] for server in servers])
    assert torch.equal(shards, results[max(slow)][1])


@pytest.mark.parametrize("servers, prefetch", [([1], 0), ([2, 0], 3)])
def test_one_worker_and_its_servers_on_real_ranks(servers, prefetch):
    options, ranks = {"alpha": 0.2, "tau": 3, "prefetch": prefetch}, len(servers) + 1
    (worker,) = set(range(ranks)) - set(servers)
    results = run(asynchronously, ranks, servers, options)
    x, c = replayed({worker: 1.0}, servers[0], **options)
    torch.testing.assert_close(results[worker][0], x[worker], rtol=0, atol=1e-12)
    torch.testing.assert_close(results[worker][1], c, rtol=0, atol=1e-12)


def test_workers_on_real_ranks_stay_near_one_another():
    results = run(asynchronously, 4, [3], {"beta": 0.9, "tau": 2, "prefetch": 1})
    for x, end, _ in results[:3]:
        assert torch.equal(end, results[3][0])
        assert float((x - end).norm()) < 0.5 * float(end.norm())


# The deployment of deck F, with AlexNet


CLIENTS, SERVERS, TAU, STEP_S = 32, 64, 10, 0.1
ALEXNET = 61_000_000  # parameters in float32: 244 MB


def a_tenth_of_a_second(operation, flops, nbytes, device):
    return STEP_S if operation == "mm" else 0.0


def deployed(comm, prefetch):
    """The seconds from one meeting to the next."""
    net, servers, ends = nn.Module(), range(SERVERS), []
    net.w = nn.Parameter(torch.empty(ALEXNET, device=comm.device))
    if comm.rank in servers:
        serve_centre(comm, net, servers)
        return None
    net.w.grad, small = torch.empty_like(net.w), torch.empty(1, 1, device=comm.device)
    options = {"beta": 0.9, "tau": TAU, "prefetch": prefetch, "order": "after"}
    elastic = ElasticAveraging(net, ServedCentre(comm, servers), **options)
    for _ in range(2 * TAU):
        _ = small @ small
        elastic.step(0.01)
        ends.append(comm.clock())
    elastic.finish()
    return ends[-1] - ends[TAU - 1]


OVERHEAD_S = {  # per meeting: of ten steps, a second
    (ETHERNET_1G, 0): 2.904,
    (ETHERNET_1G, 5): 2.904,
    (ETHERNET_10G, 0): 0.1952,
    (ETHERNET_10G, 5): 0.0,
    (FDR, 0): 0.0358,
    (FDR, 5): 0.0,
}


@pytest.mark.parametrize("cable, prefetch", OVERHEAD_S)
def test_communication_is_free_with_prefetch_from_ten_gigabits_on(cable, prefetch):
    ranks = CLIENTS + SERVERS
    world = imagined(ranks, cable, device="meta", charge=a_tenth_of_a_second)
    seconds = run(deployed, ranks, prefetch, on=world, checked=False, timeout=None)[SERVERS:]
    transfer = 4 * ALEXNET / cable.bytes_per_s
    foreseen = overhead_s(transfer, transfer, STEP_S, TAU, prefetch)
    assert foreseen == pytest.approx(OVERHEAD_S[cable, prefetch], abs=1e-4)
    overhead = [one - TAU * STEP_S for one in seconds]
    assert overhead == pytest.approx([foreseen] * CLIENTS, abs=5e-3)
    assert foreseen or max(overhead) < 1e-9


def together(comm, tau):
    """The seconds that a step takes: the mean of the last ten of twenty."""
    net = nn.Module()
    net.w = nn.Parameter(torch.empty(ALEXNET, device=comm.device))
    net.w.grad, small = torch.empty_like(net.w), torch.empty(1, 1, device=comm.device)
    elastic = ElasticAveraging(net, SynchronousCentre(comm, reduce=RING), alpha=0.1, tau=tau)
    ends = []
    for _ in range(20):
        _ = small @ small
        elastic.step(0.01)
        ends.append(comm.clock())
    return (ends[19] - ends[9]) / 10


def test_a_meeting_of_all_has_the_time_until_the_next_one():
    """With no centre older than without: it is not needed before.  4 ranks at 10 Gb/s."""
    world = imagined(4, ETHERNET_10G, device="meta", charge=a_tenth_of_a_second)
    for tau, seconds in ((10, STEP_S), (3, STEP_S), (2, 0.1465), (1, 0.2930)):
        took = run(together, 4, tau, on=world, timeout=None)
        assert took == pytest.approx([seconds] * 4, abs=1e-3)


# Against others


WAYS = "all-reduce", "elastic", "gossip"


def on_one_line(comm, how, steps):
    """Least squares in 20 unknowns with noisy gradients: how far the answer is from the best after
    equal steps, as mean square, and the bytes that this rank has sent."""
    generator = torch.Generator().manual_seed(comm.rank)
    truth, net = torch.linspace(-1, 1, 20).double(), nn.Linear(20, 1, bias=False).double()
    centre = SynchronousCentre(comm)
    if how == "all-reduce":
        net = DataParallel(net, comm)
        chosen = torch.optim.SGD(net.parameters(), 0.05)
    elif how == "elastic":
        learner = ElasticAveraging(net, centre, beta=0.9, tau=10)
    else:
        learner = DecentralisedSGD(net, comm, metropolis(ring_graph(comm.size)))
    for _ in range(steps):
        x = torch.randn(4, 20, generator=generator, dtype=torch.float64)
        y = x @ truth[:, None] + torch.randn(4, 1, generator=generator, dtype=torch.float64)
        net.zero_grad()
        ((net(x) - y) ** 2).mean().div(2).backward()
        chosen.step() if how == "all-reduce" else learner.step(0.05)
    end, sent = learner.finish() if how == "elastic" else trained(net), comm.meter.sent_bytes
    all_reduce(comm, end, "mean")
    return float(((end - truth) ** 2).sum()), sent


def test_three_ways_to_learn_together():
    """From 7.37 to much the same; elastic averaging has sent a tenth, and a ring of neighbours
    somewhat more than a ring all-reduce: 2 n bytes a step instead of 2 n (p - 1) / p."""
    found = {how: run(on_one_line, 5, how, 120, on=imagined(5)) for how in WAYS}
    apart = [found[how][0][0] for how in WAYS]
    assert apart == pytest.approx([0.0208, 0.0283, 0.0224], abs=1e-4)
    before = started(5, lambda: nn.Linear(20, 1, bias=False).double())[4]
    sent = {how: found[how][4][1] - before for how in WAYS}  # by rank 4
    assert sent["elastic"] == 12 * cost.ring_all_reduce(5, 20, 8).sent_bytes[4]
    assert sent["gossip"] == 120 * 2 * 20 * 8
    assert 0.7 < sent["all-reduce"] / sent["gossip"] < 0.9


# What goes wrong


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("centre", [{}, {"server": 2}])
def test_together_the_end_of_one_ends_all(seed, centre):
    draw = random.Random(seed)
    lost, options = draw.randrange(5), {"alpha": 0.1, "tau": draw.choice([1, 3])}
    world = imagined(5, charge=seconds_a_gradient, dead={lost: draw.uniform(0, 0.05)})
    with pytest.raises(RankError) as caught:
        run(synchronously, 5, [centre], options, on=world)
    failures = caught.value.failures
    assert caught.value.rank == lost and set(failures) == set(range(5))
    assert all("PeerLost: rank" in sentence for sentence in failures.values())


@pytest.mark.parametrize("seed", range(20))
def test_with_servers_the_end_of_one_ends_those_who_need_it(seed):
    """A worker is not missed; without a server the workers end, and then the other servers."""
    draw = random.Random(seed)
    servers, options = draw.sample(range(6), 2), {"alpha": 0.1, "tau": draw.choice([1, 3, 5])}
    lost, options["prefetch"] = draw.randrange(6), draw.choice([0, 1])
    world = imagined(6, charge=seconds_a_gradient, dead={lost: draw.uniform(1e-3, 0.05)})
    with pytest.raises(RankError) as caught:
        run(asynchronously, 6, servers, options, on=world)
    workers = set(range(6)) - set(servers)
    ended = {lost} | workers if lost in servers else {lost}
    assert caught.value.rank == lost and set(caught.value.failures) == ended
    assert all("PeerLost: rank" in sentence for sentence in caught.value.failures.values())


def leaves(comm, servers, step):
    """Rank 1 ends without a word at this step; the others go on and end as usual."""
    net = Fit()
    if comm.rank in servers:
        shard = serve_centre(comm, net, servers)
        assert shard.isfinite().all()
        return
    elastic = ElasticAveraging(net, ServedCentre(comm, servers), alpha=0.1, tau=2, prefetch=1)
    if comm.rank == 1:
        learn(elastic, net, comm.rank, step)
        os._exit(3)
    learn(elastic, net, comm.rank)
    assert elastic.finish().isfinite().all()


@pytest.mark.parametrize("step", [0, 5])
def test_a_lost_worker_is_not_missed_on_real_ranks(step):
    with pytest.raises(RankError) as caught:
        run(leaves, 4, [0, 3], step)
    assert set(caught.value.failures) == {1}


def refused(comm):
    """The sentence for each call that cannot be."""
    centre, sentences = SynchronousCentre(comm), []
    sgd = torch.optim.SGD(Number().parameters(), 0.1)
    for call in (
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, tau=0),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, tau=2.0),
        lambda: ElasticAveraging(Number(), centre),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, beta=0.1),
        lambda: ElasticAveraging(Number(), centre, rho=-1.0),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, momentum=1.0),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, order="new"),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, tau=4, prefetch=5),
        lambda: ElasticAveraging(nn.ReLU(), centre, alpha=0.1),
        lambda: SynchronousCentre(comm, server=2),
        lambda: SynchronousCentre(comm, resync_every=0),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1).step("fast"),
        lambda: ElasticAveraging(Number(), centre, alpha=0.1, momentum=0.5).step(sgd),
        lambda: ServedCentre(comm, [comm.rank]),
        lambda: ServedCentre(comm, [0, 1]),
        lambda: serve_centre(comm, Number(), [1 - comm.rank]),
        lambda: serve_centre(comm, Number(), [0, 0]),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        sentences.append(str(caught.value))
    return sentences


def test_what_cannot_be():
    some = "rank 1: servers are some of the ranks 0 to 1, each once, and at least one rank is left "
    assert run(refused, 2)[1] == [
        "rank 1: tau is a whole number, 1 or more, not 0",
        "rank 1: tau is a whole number, 1 or more, not 2.0",
        "rank 1: one of alpha, rho, beta is given, not None",
        "rank 1: one of alpha, rho, beta is given, not {'alpha': 0.1, 'beta': 0.1}",
        "rank 1: rho is more than 0, not -1.0",
        "rank 1: momentum is 0 or more and less than 1, not 1.0",
        "rank 1: order is one of before, after, not 'new'",
        "rank 1: prefetch is 0 to tau, which is 4, not 5",
        "weights in one tensor are of one dtype and device, not none",
        "rank 1: rank 2 cannot keep the centre: the ranks are 0 to 1",
        "rank 1: resync_every is a whole number, 1 or more, not 0",
        "rank 1: a step is taken with a rate or an optimiser, not 'fast'",
        "rank 1: an optimiser has a momentum of its own, and then that given here is 0, not 0.5",
        "rank 1 is a server, which calls serve_centre(), no worker",
        some + "to work: not [0, 1]",
        "rank 1 is none of the servers [0]",
        some + "to work: not [0, 0]",
    ]


def warned(comm, alpha, curvature, served):
    """What is said in three steps of rate 0.1, each the last rank's only server's or everyone's."""
    if served and comm.rank == 0:
        return serve_centre(comm, Number(), [0]) is None
    centre = ServedCentre(comm, [0]) if served else SynchronousCentre(comm)
    net = Number()
    elastic = ElasticAveraging(net, centre, alpha=alpha, tau=1, curvature=curvature)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            net.x.grad = torch.ones(1, dtype=torch.float64)
            elastic.step(0.1)
    elastic.finish()
    return [str(one.message) for one in said]


def test_too_stiff_a_spring_is_told_once_with_its_bound():
    assert run(warned, 3, 0.49, 0.0, False, on=imagined(3)) == [[]] * 3
    assert run(warned, 3, 0.5, 0.0, False, on=imagined(3))[2] == [
        "rank 2: alpha 0.5 is not below 0.5, where 3 workers together, every 1 steps, no longer "
        "settle (rate times curvature 0)"
    ]
    assert run(warned, 3, 0.49, 10.0, False, on=imagined(3))[0] == [
        "rank 0: alpha 0.49 is not below 0.4, where 3 workers together, every 1 steps, no longer "
        "settle (rate times curvature 1)"
    ]
    assert run(warned, 3, 0.66, 10.0, True, on=imagined(3))[1] == []
    assert run(warned, 3, 0.7, 10.0, True, on=imagined(3))[1] == [
        "rank 1: alpha 0.7 is not below 0.6667, where 2 workers in turn, every 1 steps, no longer "
        "settle (rate times curvature 1)"
    ]
