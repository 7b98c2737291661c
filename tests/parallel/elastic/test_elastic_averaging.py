"""Elastic averaging is the serial recursion with all workers in one process: every parameter."""

import functools
import warnings

import pytest
import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, GTX_680
from course.collectives import all_reduce, cost
from course.comm import Trace
from course.parallel.data.data_parallel import DataParallel
from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.elastic.elastic_averaging import ElasticAveraging
from course.parallel.elastic.served_centre import ServedCentre, serve_centre
from course.parallel.flat_parameters import broadcast_module
from course.parallel.gossip.gossip import DecentralisedSGD
from course.parallel.gossip.topology import metropolis, ring_graph
from course.worlds import run, simulated
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
    assert (torch.stack(moved) - expected).abs().max() > 1e-3


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


# What it costs


def started(p, make=Fit):
    """What the ranks send until all have the same model."""
    trace = Trace()
    run(lambda comm: broadcast_module(comm, make()), p, trace=trace, on=imagined(p))
    return trace.sent_bytes


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
    2 n bytes a step, instead of a ring all-reduce's 2 n (p - 1) / p."""
    found = {how: run(on_one_line, 5, how, 120, on=imagined(5)) for how in WAYS}
    apart = [found[how][0][0] for how in WAYS]
    assert apart == pytest.approx([0.0208, 0.0283, 0.0224], abs=1e-4)
    before = started(5, lambda: nn.Linear(20, 1, bias=False).double())[4]
    sent = {how: found[how][4][1] - before for how in WAYS}  # by rank 4
    assert sent["elastic"] == 12 * cost.ring_all_reduce(5, 20, 8).sent_bytes[4]
    assert sent["gossip"] == 120 * 2 * 20 * 8
    five = 5  # a weight, a flag, and three numbers more go with the gradients
    assert sent["all-reduce"] == 120 * cost.ring_all_reduce(5, 20 + five, 8).sent_bytes[4]


# What goes wrong


def changed_on_the_way(comm, change):
    """Rank 0's module is changed after two steps; what its third step says, in each learner."""
    said, matrix = [], metropolis(ring_graph(comm.size))
    for make in (
        lambda net: ElasticAveraging(net, SynchronousCentre(comm), alpha=0.2, tau=1),
        lambda net: DecentralisedSGD(net, comm, matrix),
    ):
        net = Fit()
        learner = make(net)
        learn(learner, net, comm.rank, steps=2)
        change(net)
        with pytest.raises(RuntimeError) as caught:
            learner.step(RATE)
        said.append(str(caught.value))
        learner.finish()
    return said


def assigned(net):
    net.load_state_dict({name: x.clone() for name, x in net.state_dict().items()}, assign=True)


@pytest.mark.parametrize("change", [lambda net: net.float().double(), assigned])
def test_a_module_that_is_no_longer_what_is_trained_is_told(change):
    """Its weights did not move at all, without a word."""
    for rank, said in enumerate(run(changed_on_the_way, 2, change, on=imagined(2))):
        assert len(said) == 2
        assert all(one.startswith(f"rank {rank}: first.weight is not trained") for one in said)


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
