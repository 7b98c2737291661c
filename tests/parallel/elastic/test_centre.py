"""A centre that all move together: copies that drift, what a meeting costs, and who is lost."""

import random

import pytest
import torch
from torch import nn

from course.cluster.hardware import ETHERNET_10G
from course.collectives import all_gather, all_reduce, cost
from course.comm import Trace
from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.elastic.elastic_averaging import ElasticAveraging
from course.worlds import RankError, run
from tests.parallel.elastic.test_elastic_averaging import (
    RING,
    imagined,
    seconds_a_gradient,
    started,
    synchronously,
)
from tests.parallel.elastic.test_served_centre import ALEXNET, STEP_S, a_tenth_of_a_second
from tests.parallel.gossip.test_gossip import RATE, STEPS, Fit, rows, trained


def three_meetings(comm, server):
    """What every rank knows of the centre before any meeting and after each of three."""
    centre, known = SynchronousCentre(comm, server=server), []
    centre.start(torch.zeros(2))
    for meeting in range(3):
        centre.prefetch()
        known.append(centre.pull().tolist())
        centre.push(torch.tensor([1.0, comm.rank * 10**meeting]))
    return [*known, centre.cached().tolist(), centre.finish().tolist()]


@pytest.mark.parametrize("server", [None, 0, 2])
def test_the_centre_moves_by_the_sum_of_all_differences(server):
    known = [[0, 0], [3, 3], [6, 33], [9, 333], [9, 333]]
    assert run(three_meetings, 3, server) == [known] * 3


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
