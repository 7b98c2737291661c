"""Runs of a parameter server whose clients have known speeds: a gradient takes a second.

`known_speeds` is their cluster, `bowl_arrives` asks whether a server with one weight comes to rest,
`by_rate` and `by_version` judge what replays have learned with five seeds, `servers_step_s` and
`shards_step_s` are the seconds that nothing but messages take.
"""

import statistics

import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.collectives import all_gather, reduce_scatter
from course.learning.training.digits import SEEDS, digit_net, digit_split, judge
from course.parallel.server import serve
from course.parallel.server.client import Client
from course.parallel.server.shards import shard_plan
from course.parallel.server.staleness import asynchronous
from course.parallel.server.updates import sgd
from course.worlds import run, simulated


def a_second(operation, flops, nbytes, device):
    """A slope (its dot product) or a gradient (its softmax) takes a second, all else nothing."""
    return 1.0 if operation in ("dot", "_softmax") else 0.0


def known_speeds(ranks, slow=None, **more):
    """A cluster of so many ranks on which a gradient takes a second, and a rank in `slow`
    {rank: factor} takes so many times as long; its cables are FDR InfiniBand."""
    return simulated(one_switch(ranks, FREE, FDR), charge=a_second, slow=slow, **more)


def slope(w):
    """The slope of the bowl |w|²/2 at `w` [elements]: w, by autograd, so that it takes a second."""
    w = w.detach().requires_grad_()
    return torch.autograd.grad(torch.dot(w, w) / 2, w)[0]


def out_of_step(clients, slow=()):
    """How slow each of the ranks 1 to `clients` is: a little more than the one before."""
    return {rank: 1 + rank / 100 for rank in range(1, clients + 1)} | dict(slow)


def bowl_arrives(clients, rate, updates=240) -> bool:
    """Whether the server with one weight w and the loss w²/2 comes nearer to the minimum, by the
    last weights that `clients` see who are out of step and wait for nobody."""
    plan, steps = shard_plan(clients + 1, 1, 1), updates // clients
    on = known_speeds(clients + 1, out_of_step(clients))
    _, *seen = run(_in_a_bowl, clients + 1, plan, rate, steps, on=on, timeout=None)
    return max(abs(w) for path in seen for w in path[-steps // 6 :]) < 1


def _in_a_bowl(comm, plan, rate, steps):
    """The weights that a client saw; its gradient is the weight itself."""
    model, seen = nn.Linear(1, 1, bias=False).double(), []
    nn.init.ones_(model.weight)
    if comm.rank in plan.servers:
        return serve(comm, plan, model, sgd(rate), rule=asynchronous())
    with Client(comm, plan, model) as client:
        for _ in range(steps):
            client.pull()
            seen.append(model.weight.item())
            model.weight.grad = slope(model.weight.flatten()).view(1, 1)
            client.push()
    return seen


def validation_loss(flat) -> float:
    """The loss of the digits' validation images with the weights `flat` [elements]."""
    model = digit_net(0).to(flat.dtype)
    vector_to_parameters(flat, model.parameters())
    return judge(model, digit_split(flat.dtype).validation).loss


def by_rate(learn, update, rates):
    """The rates, and for each the validation losses of five seeds [rates, seeds] after
    `learn(update(rate), seed)`, which returns all versions of the weights."""
    ends = [[learn(update(rate), seed)[-1] for seed in SEEDS] for rate in rates]
    return rates, [[validation_loss(flat) for flat in each] for each in ends]


def best_rate(rates, losses):
    """The rate with the least mean loss, its losses [seeds], and from which to which rate the mean
    is at most half as large again."""
    means = [statistics.mean(each) for each in losses]
    least = min(means)
    near = [rate for rate, mean in zip(rates, means) if mean <= 1.5 * least]
    return rates[means.index(least)], losses[means.index(least)], (min(near), max(near))


def by_version(learn, update, seen_at, points=24):
    """Versions, the seconds at which they were first seen, {version: second}, and their validation
    losses [versions, seeds], of about so many `points` of what `learn(update, seed)` returns."""
    seen = sorted(seen_at)
    shown = sorted({*seen[:: max(1, len(seen) // points)], seen[-1]})
    paths = [learn(update, seed) for seed in SEEDS]
    losses = [[validation_loss(path[version]) for path in paths] for version in shown]
    return shown, [seen_at[version] for version in shown], losses


def servers_step_s(clients, servers, elements):
    """Seconds of a pull and a push of each client, and how busy a server's and a client's cable is,
    as shares of the time, each way."""
    ranks = clients + servers
    world = simulated(one_switch(ranks, FREE, FDR), device="meta")
    plan = shard_plan(ranks, servers, elements)
    run(_one_step, ranks, plan, on=world, timeout=None, checked=False)
    use = {each.link: each.utilisation for each in world.report.links}
    return world.report.seconds, use["gpu 0 → switch"], use[f"gpu {servers} → switch"]


def _one_step(comm, plan):
    """A pull and a push of each client; tensors have a shape and no contents."""
    model = nn.Linear(plan.bounds[-1], 1, bias=False, device=comm.device)
    if comm.rank in plan.servers:
        serve(comm, plan, model, sgd(1.0), rule=asynchronous())
        return
    with Client(comm, plan, model) as client:
        client.pull()
        model.weight.grad = torch.ones_like(model.weight)
        client.push()


def shards_step_s(ranks, elements):
    """Seconds of a reduce-scatter and an all-gather of shards that the workers keep."""
    world = simulated(one_switch(ranks, FREE, FDR), device="meta")
    run(_both_halves, ranks, elements, on=world, timeout=None, checked=False)
    return world.report.seconds


def _both_halves(comm, elements):
    shards = torch.empty(elements, device=comm.device).tensor_split(comm.size)
    reduce_scatter(comm, shards[comm.rank].clone(), shards)
    all_gather(comm, shards, shards[comm.rank])
