"""Ways to train on many, each a program `train(comm, net, batches)` of the `scoreboard`.

They return the weights to be judged [elements], of each rank its own or None from one without.
What is not the default of a program is given with functools.partial.
"""

import functools

from course.collectives import all_reduce
from course.learning.training.digits import backward
from course.parallel.elastic import ElasticAveraging
from course.parallel.elastic.centre import SynchronousCentre
from course.parallel.elastic.served_centre import ServedCentre, serve_centre
from course.parallel.flat_parameters import FlatParameters
from course.parallel.gossip import DecentralisedSGD
from course.parallel.gossip.topology import metropolis, ring_graph
from course.parallel.server import serve
from course.parallel.server.client import Client
from course.parallel.server.shards import shard_plan
from course.parallel.server.staleness import asynchronous, synchronous
from course.parallel.server.updates import sgd

RATE = 1.0
by_doubling = functools.partial(all_reduce, algorithm="recursive_doubling")  # the vectors are short


def data_parallel(comm, net, batches, rate=RATE, reduce=by_doubling):
    """The mean of all gradients in every step."""
    weights = FlatParameters(net)
    gradient = weights.flat.clone()
    for x, y in batches:
        backward(net, x, y)
        weights.add_gradient(gradient.zero_(), 1.0)
        reduce(comm, gradient, "mean")
        weights.flat.sub_(gradient, alpha=rate)
    return weights.flat


def by_server(comm, net, batches, rule=None, rate=RATE):
    """Gradients to a server, rank 0, which applies them by its `rule`, and weights back.

    Unless all go together, each of the workers' gradients is a step of its own, so `rate` is
    shared between them.
    """
    rule = rule or synchronous()
    plan = shard_plan(comm.size, 1, sum(p.numel() for p in net.parameters()))
    if comm.rank in plan.servers:
        each = rate if rule.synchronous else rate / len(plan.clients)
        return serve(comm, plan, net, sgd(each), rule=rule).values
    with Client(comm, plan, net) as client:
        for x, y in batches:
            client.pull()
            backward(net, x, y)
            client.push(len(x))
    return None


by_asynchronous_server = functools.partial(by_server, rule=asynchronous())


def by_gossip(comm, net, batches, rate=RATE, graph=ring_graph):
    """A step of each rank's own, and in every step the mean with its neighbours."""
    learner = DecentralisedSGD(net, comm, metropolis(graph(comm.size)))
    for x, y in batches:
        backward(net, x, y)
        learner.step(rate)
    return learner.finish()


def elastic(comm, net, batches, rate=RATE, tau=10, beta=0.9, momentum=0.0):
    """Elastic averaging in step: all meet at the end of every `tau`-th step, beside their work."""
    centre = SynchronousCentre(comm, reduce=by_doubling)
    options = {"beta": beta, "tau": tau, "momentum": momentum, "order": "after"}
    return _tied(ElasticAveraging(net, centre, **options), net, batches, rate * (1 - momentum))


def elastic_by_server(comm, net, batches, rate=RATE, tau=10, beta=0.9, prefetch=5):
    """Elastic averaging with a centre on rank 0, which each worker meets when it likes."""
    if comm.rank == 0:
        return serve_centre(comm, net, [0])
    options = {"beta": beta, "tau": tau, "prefetch": prefetch, "order": "after"}
    _tied(ElasticAveraging(net, ServedCentre(comm, [0]), **options), net, batches, rate)
    return None


def _tied(learner, net, batches, rate):
    for x, y in batches:
        backward(net, x, y)
        learner.step(rate)
    return learner.finish()
