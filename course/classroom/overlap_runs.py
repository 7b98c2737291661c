"""Steps of equal layers by `DataParallel`: their moments, and when buckets are sent by formula.

The moments of a step are seconds: when it began, when forward ended, when each gradient was there
(the last layer's first), and when everything was over; of one step, from its beginning on.
"""

import torch
from torch import nn

from course import worlds
from course.collectives import cost
from course.comm import Trace
from course.parallel.data import DataParallel

LAYERS, WIDTH = 16, 256
WIDE, IMAGES, TURNS = 512, 384, 4  # on real hosts
RATE = "1gbit"


def moments_of_steps(comm, bucket_mb, width=WIDTH, images=4096, turns=2) -> list:
    """The moments of so many steps."""
    layers = [nn.Linear(width, width, bias=False, device=comm.device) for _ in range(LAYERS)]
    net, moments, steps = DataParallel(nn.Sequential(*layers), comm, bucket_mb=bucket_mb), [], []
    for layer in layers:
        layer.weight.register_post_accumulate_grad_hook(lambda _: moments.append(comm.clock()))
    x = torch.ones(images, width, device=comm.device)
    for _ in range(turns):
        net.zero_grad()
        comm.barrier()
        moments.append(comm.clock())
        loss = net(x).sum()
        moments.append(comm.clock())
        loss.backward()
        steps.append([*moments, comm.clock()])
        moments.clear()
    return steps


def imagined_step(layers_in_a_bucket, cluster):
    """The moments of rank 0 of 8 on a `cluster` in its second step, and when each all-reduce
    beside its arithmetic began and ended."""
    trace, bucket_mb = Trace(), layers_in_a_bucket * 4 * WIDTH**2 / 1e6
    where = {"on": worlds.simulated(cluster, device="meta"), "checked": False, "trace": trace}
    moments = worlds.run(moments_of_steps, 8, bucket_mb, **where)[0][-1]
    return of_one_step(moments, trace)


def real_step(ranks, bucket_mb):
    """The quickest step of rank 0 on hosts with a cable of 1 Gb/s: its moments, and when each
    all-reduce beside its arithmetic began and ended."""
    where = {"on": worlds.hosts(ranks, rate=RATE), "trace": Trace(), "checked": False}
    steps = worlds.run(moments_of_steps, ranks, bucket_mb, WIDE, IMAGES, TURNS, **where)[0]
    moments = min(steps, key=lambda moments: moments[-1] - moments[0])
    return of_one_step(moments, where["trace"])


def of_one_step(moments, trace):
    """The moments of a step from its beginning on, and when each all-reduce beside it began and
    ended (s)."""
    from course.classroom.timeline import calls_beside  # ranks go without what draws

    begin, end = moments[0], moments[-1]
    beside = calls_beside(trace, 0, "all-reduce", begin, end)
    return [each - begin for each in moments], [(call.start, call.end) for call in beside]


def when_sent(ready, per_bucket, p, alpha, beta) -> list:
    """When the all-reduce of each bucket begins and ends (s), if gradients are there at `ready`,
    by a ring of p ranks, one all-reduce after the other."""
    spans, over = [], 0.0
    for first in range(0, LAYERS, per_bucket):
        last = min(first + per_bucket, LAYERS)
        ring = cost.ring_all_reduce(p, (last - first) * WIDTH**2, 4)
        begins = max(ready[last - 1], over)
        over = begins + ring.seconds(alpha, beta)
        spans.append((begins, over))
    return spans


def on_the_cable(alone, one, several, hidden, sent) -> str:
    """What times of real steps (ms) show: without a cable, with one bucket, with several, whose
    messages take `sent`, `hidden` of it beside backward."""
    cable_ms = 1e3 * LAYERS * WIDE**2 * 4 / worlds.hosts(2, rate=RATE).bytes_per_s
    if not 1 < one / (alone + cable_ms) < 1.5 or several > one:
        return "Other work has disturbed these times, and they show nothing"
    return f"{one - several:.0f} ms less: {hidden:.0f} of {sent:.0f} ms of messages beside backward"
