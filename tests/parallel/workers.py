"""What the ranks of a parameter server do in the tests; a rank imports this and no more."""

import contextlib
import os
import socket
from collections import Counter
from pathlib import Path

import torch
from torch import nn

from course.comm import PeerLost
from course.parallel.server.client import Client
from course.parallel.server.server import serve
from course.parallel.server.shards import agree
from course.parallel.server.snapshots import Snapshots
from course.parallel.server.staleness import asynchronous
from course.parallel.server.updates import adagrad, sgd, slower_if_stale

ELEMENTS, STEPS = 6 * 7 + 7 + 7 * 2 + 2, 6


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def rows(step, count=11):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, 2, generator=generator, dtype=torch.float64)


def loss(module, x, y):
    return ((module(x) - y) ** 2).mean()


def vector(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def gathered(results, plan):
    """The flat parameters [elements], from what the servers have returned."""
    return torch.cat([results[server].values for server in plan.servers])


def train(comm, plan, update, *, rule=None, steps=STEPS, count=11, snapshots=None):
    """One program on all ranks: the server's account, or a client's weights before each step."""
    module = net()
    if comm.rank in plan.servers:
        return serve(comm, plan, module, update(), rule=rule, snapshots=snapshots)
    me, path = plan.clients.index(comm.rank), []
    with Client(comm, plan, module) as client:
        while client.clock < steps:
            client.pull()
            path.append(vector(module))
            part = (me + client.clock) % len(plan.clients)  # the larger one takes turns
            x, y = (all_rows.tensor_split(len(plan.clients))[part]
                    for all_rows in rows(client.clock, count))  # fmt: skip
            loss(module, x, y).backward()
            client.push(len(x))
    return torch.stack(path)


def at_its_own_pace(comm, plan, n_push, n_fetch, rate):
    """Of a client, its weights before each step, whatever it has fetched and pushed meanwhile."""
    module, path = net(), []
    if comm.rank in plan.servers:
        update = descend() if rate is None else sgd(1.0)
        return serve(comm, plan, module, update, rule=asynchronous())
    with Client(comm, plan, module, n_push=n_push, n_fetch=n_fetch, rate=rate) as client:
        for step in range(STEPS):
            client.pull()
            path.append(vector(module))
            loss(module, *rows(step)).backward()
            client.push()
    return torch.stack(path)


def descend():
    return sgd(0.1)


def downpour():
    return adagrad(0.05)


def five_times(comm, plan):
    return [train(comm, plan, descend, steps=use + 1) for use in range(5)]


def part_of_a_world(comm, plan):
    """Servers and clients among the odd ranks of a larger world."""
    odd = comm.split(comm.rank % 2)
    return train(odd, plan, descend) if comm.rank % 2 else None


class Bare(nn.Module):
    """Nothing but weights [elements], whose gradients a test makes up."""

    def __init__(self, elements, device="cpu", dtype=torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(elements, device=device, dtype=dtype))


def push_ones(comm, plan, steps, rule=None, dtype=torch.float32, **knobs):
    """Every gradient is one everywhere; the server's account without its weights."""
    module = Bare(plan.bounds[-1], comm.device, dtype)
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(1.0), rule=rule)._replace(values=None)
    with Client(comm, plan, module, **knobs) as client:
        for _ in range(steps):
            client.pull()
            module.w.grad = torch.ones_like(module.w)
            client.push()
    return None if module.w.is_meta else module.w.detach().unique().tolist()


def paced(comm, plan, rule, steps, **knobs):
    """Clients that begin one after another, evenly spread over a step, and compute for a second
    between pull and push.  The server's account; of a client, its versions at each push."""
    module = Bare(plan.bounds[-1])
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(1.0), rule=rule)
    with Client(comm, plan, module, **knobs) as client:
        for _ in range(steps):
            client.pull()
            torch.tanh(torch.ones(1))
            module.w.grad = torch.ones_like(module.w)
            client.push()


def rarely_fetching(comm, plan, snapshots, steps):
    """Every gradient is one; four pushes a fetch.  The server's account; where a client began."""
    module = Bare(plan.bounds[-1])
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(1.0), snapshots=snapshots)
    with Client(comm, plan, module, n_fetch=4) as client:
        client.pull()
        begun = client.clock
        for step in range(begun, steps):
            if step > begun:
                client.pull()
            module.w.grad = torch.ones_like(module.w)
            client.push()
    return begun


def uneven(comm, plan, rule):
    return paced(comm, plan, rule, 2 if comm.rank == 1 else 9)


def scaled(comm, plan, steps):
    if comm.rank in plan.servers:
        return serve(comm, plan, Bare(4), sgd(1.0), rule=asynchronous(), scale=slower_if_stale)
    return paced(comm, plan, None, steps)


def outlived(comm, *args):
    """Enduring, but a rank whose lines are cut returns all the same."""
    with contextlib.suppress(Gone):
        return enduring(comm, *args)


def enduring(comm, plan, rule, steps, folder, end=None):
    """Paced, with snapshots, up to `steps` pushes of each client, earlier runs' included; each rank
    that comes to its end notes how.  `end` {(rank, clock): function of comm} ends a rank's life."""
    module = Bare(plan.bounds[-1], dtype=torch.float64)
    if comm.rank in plan.servers:
        snapshots = Snapshots(folder, every=2)
        account = serve(comm, plan, module, sgd(1.0), rule=rule, snapshots=snapshots)
        applied = Counter(row.client for row in account.applied)
        note(folder, comm.rank, version=account.version, lost=account.lost, applied=applied,
             stale=account.histogram)  # fmt: skip
        return account
    with Client(comm, plan, module) as client:
        client.pull()
        while client.clock < steps:
            torch.tanh(torch.ones(1))
            if (comm.rank, client.clock) in (end or {}):
                end[comm.rank, client.clock](comm)
            module.w.grad = torch.ones_like(module.w)
            client.push()
            client.pull()
    note(folder, comm.rank, clock=client.clock)


def note(folder, rank, **what):
    torch.save(what, Path(folder, f"rank {rank}.note"))


class Gone(BaseException):
    """This rank does nothing more."""


def cut_off(comm):
    """As if the machine's cable were pulled: all its lines are down; the process lives on."""
    streams = comm._transport.sender.streams.values()
    for stream in (stream for stream in streams if stream.socket):
        stream.socket.shutdown(socket.SHUT_RDWR)
    raise Gone


def exit_at_once(comm):
    os._exit(3)


def loses_a_server(comm, plan, folder):
    """The last server ends when all have begun; what each client hears of it, and what the others
    have served."""
    if comm.rank == plan.servers[-1]:
        agree(comm, plan, Bare(plan.bounds[-1], dtype=torch.float64).w)
        with contextlib.suppress(Gone):
            cut_off(comm)
        return None
    try:
        return enduring(comm, plan, asynchronous(), 4, folder)
    except PeerLost as error:
        return str(error)


def refused(comm, calls):
    """What each call (comm, ...) is refused with; nobody sends anything before."""
    sentences = []
    for call in calls:
        try:
            call(comm)
        except (ValueError, RuntimeError, FloatingPointError) as error:
            sentences.append(f"{type(error).__name__}: {error}")
    return sentences


def disagreeing(comm, plans):
    """Every rank has a plan of its own."""
    push_ones(comm, plans[comm.rank], 1)


def gone_wrong(comm, plan, wrong):
    """Clients pull, then the last does what is `wrong`; the server's account, or the sentence."""
    module = Bare(plan.bounds[-1])
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(1.0))
    try:
        with Client(comm, plan, module) as client:
            client.pull()
            if comm.rank == plan.clients[-1]:
                wrong(client, module)
            module.w.grad = torch.ones_like(module.w)
            client.push()
    except (ValueError, RuntimeError, FloatingPointError) as error:
        return f"{type(error).__name__}: {error}"
