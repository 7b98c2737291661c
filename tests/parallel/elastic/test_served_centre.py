"""A centre on servers: a replay of who came when, with a centre as old as it was asked for."""

import os
import random

import pytest
import torch
from torch import nn

from course.cluster.hardware import ETHERNET_1G, ETHERNET_10G, FDR
from course.comm import Trace
from course.parallel.elastic.elastic_averaging import ElasticAveraging
from course.parallel.elastic.served_centre import ServedCentre, overhead_s, serve_centre
from course.worlds import RankError, run
from tests.parallel.elastic.test_elastic_averaging import (
    Number,
    gradient,
    imagined,
    learn,
    seconds_a_gradient,
    started,
)
from tests.parallel.gossip.test_gossip import RATE, STEPS, Fit, rows, trained

# Published numbers, and what it costs


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


# What goes wrong


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
