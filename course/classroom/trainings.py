"""Ways to train on many, each a program `train(comm, net, batches)` of the `scoreboard`.

They return the weights to be judged [elements], of each rank its own or None from one without.
What is not the default of a program is given with functools.partial.
"""

from course.collectives import all_reduce
from course.learning.training.digits import backward
from course.parallel.flat_parameters import FlatParameters
from course.parallel.gossip import DecentralisedSGD
from course.parallel.gossip.topology import metropolis, ring_graph
from course.parallel.server import serve
from course.parallel.server.client import Client
from course.parallel.server.shards import shard_plan
from course.parallel.server.staleness import synchronous
from course.parallel.server.updates import sgd

RATE = 1.0


def data_parallel(comm, net, batches, rate=RATE, algorithm="recursive_doubling"):
    """The mean of all gradients in every step."""
    weights = FlatParameters(net)
    gradient = weights.flat.clone()
    for x, y in batches:
        backward(net, x, y)
        weights.add_gradient(gradient.zero_(), 1.0)
        all_reduce(comm, gradient, "mean", algorithm=algorithm)
        weights.flat.sub_(gradient, alpha=rate)
    return weights.flat


def by_server(comm, net, batches, rule=None, rate=RATE):
    """Gradients to a server, rank 0, which applies them by its `rule`, and weights back.

    Unless all go together, each of the workers' gradients is a step of its own, so `rate` is
    shared between them.
    """
    rule, plan = (
        rule or synchronous(),
        shard_plan(comm.size, 1, sum(p.numel() for p in net.parameters())),
    )
    if comm.rank in plan.servers:
        each = rate if rule.synchronous else rate / len(plan.clients)
        return serve(comm, plan, net, sgd(each), rule=rule).values
    with Client(comm, plan, net) as client:
        for x, y in batches:
            client.pull()
            backward(net, x, y)
            client.push(len(x))
    return None


def by_gossip(comm, net, batches, rate=RATE, graph=ring_graph):
    """A step of each rank's own, and in every step the mean with its neighbours."""
    learner = DecentralisedSGD(net, comm, metropolis(graph(comm.size)))
    for x, y in batches:
        backward(net, x, y)
        learner.step(rate)
    return learner.finish()
