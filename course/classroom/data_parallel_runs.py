"""Runs of data-parallel training with the digits, to be compared with one process.

A `way` is a function of (comm, net) that gives the network to be called and the function that makes
its gradients, after backward, those of all ranks.  Ranks get their images, and load nothing.
"""

import torch
from torch.nn.functional import cross_entropy

from course import worlds
from course.classroom.comparison import largest_difference
from course.classroom.steps import second_step, simulated_steps
from course.collectives import all_reduce
from course.learning.training.digits import backward, batches, digit_net

BATCH, DEEP = 64, [64, *[32] * 10, 10]


def weights_by(comm, train, images, way, steps=20, seeds=(0, 0, 0, 0)):
    """This rank's weights after some steps of `train(net, optimizer, parts, average)`."""
    net, average = way(comm, digit_net(seeds[comm.rank]).double())
    parts = batches(images, BATCH, steps, 0, comm.rank, comm.size)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.5), parts, average)


def farthest(mine, others) -> float:
    """The largest distance between a number of `mine` and the same one of any of the `others`."""
    return largest_difference((mine, other) for other in others)


def told_weights(serial, others) -> str:
    """How many weights there are after 20 steps, and whether the ranks have those of `serial`."""
    head = f"{len(serial):,} weights after 20 steps, on {len(others)} ranks and on 1:"
    return f"{head}\napart by less than 1e-12: {farthest(serial, others) < 1e-12}"


def told_agreement(serial, found) -> str:
    """A line for each of `found` {name: weights by rank}: how far they are from `serial`."""
    apart = {name: max(farthest(serial, others), 1e-12) for name, others in found.items()}
    return "\n".join(f"{name}, {len(found[name])} ranks and 1, apart by up to {distance:.2g}"
                     for name, distance in apart.items())  # fmt: skip


def told_distance(distance) -> str:
    """How far two trainings are apart, if more than rounding."""
    return "the same" if distance < 1e-9 else f"apart by up to {distance:.2g}"


def price(way, images, cluster):
    """The step of a deep net that rank 0 of 4 finds on `cluster`, with `images` (x, y) on each."""
    return simulated_steps(4, _deep_step, images, way, cluster=cluster)[0]


def _deep_step(comm, images, way):
    net, average = way(comm, digit_net(0, DEEP).to(comm.device))
    x, y = (part.to(comm.device) for part in images)

    def step():
        cross_entropy(net(x), y).backward()
        average()

    return second_step(comm, step)


def flat_gradients(weights, parts):
    """Of a `digit_net` with these FlatParameters, the gradient of each batch (x, y) of `parts`:
    one vector [elements], filled anew each time."""
    gradient = torch.zeros_like(weights.flat)
    for x, y in parts:
        backward(weights.module, x, y)
        weights.add_gradient(gradient.zero_(), 1.0)
        yield gradient


def on_shards(comm, program, images, clip=lambda comm, shard: None, steps=30):
    """What program(comm, net, parts, clip=clip) gives, weights and this rank's state: the weights,
    bytes of the state, and bytes that this rank sends a step."""
    deal, before = batches(images, BATCH, steps, 0, comm.rank, comm.size), comm.meter.sent_bytes
    weights, state = program(comm, digit_net(0).double(), deal, clip=clip)
    state_bytes = sum(each.nbytes for each in state.values() if each.dim())
    return weights, state_bytes, (comm.meter.sent_bytes - before) // steps


def serial_adam(train, images, clip=lambda parameters: None, steps=30):
    """The weights after the same steps in one process; `clip(parameters)` is called before each."""
    net = digit_net(0).double()
    adam, parts = torch.optim.Adam(net.parameters(), lr=0.01), batches(images, BATCH, steps, 0)
    return train(net, adam, parts, lambda: clip(net.parameters()))


def errors_of_bf16(ranks, mean_in_bf16, cluster):
    """Relative errors of the mean of so many ranks on `cluster` if bf16 adds and by
    `mean_in_bf16`, and the bytes that rank 0 sends for each."""
    world = worlds.simulated(cluster)
    return worlds.run(_errors, ranks, mean_in_bf16, on=world, checked=False)[0]


def _errors(comm, mean_in_bf16):
    chance = torch.Generator().manual_seed(comm.rank)
    exact = 1 + 0.1 * torch.randn(1024, generator=chance, dtype=torch.float64)
    bf16_adds, float32_adds = exact.bfloat16(), exact.float()
    all_reduce(comm, exact, "mean")
    marks = [comm.meter.sent_bytes]
    for reduce, x in ((all_reduce, bf16_adds), (mean_in_bf16, float32_adds)):
        reduce(comm, x, "mean")
        marks.append(comm.meter.sent_bytes)
    off = [((x - exact).norm() / exact.norm()).item() for x in (bf16_adds, float32_adds)]
    return off, (marks[1] - marks[0], marks[2] - marks[1])
