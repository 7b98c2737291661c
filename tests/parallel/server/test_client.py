"""A client of a parameter server: at its own pace, and what becomes of one that goes wrong."""

import contextlib
import math

import pytest
import torch
from torch import nn

from course.comm import Trace
from course.parallel.server.client import Client
from course.parallel.server.messages import REPLY_BYTES, REQUEST_BYTES
from course.parallel.server.server import serve
from course.parallel.server.shards import shard_plan
from course.parallel.server.staleness import asynchronous
from course.parallel.server.updates import sgd
from course.worlds import RankError, run
from tests.parallel.workers import (
    ELEMENTS,
    STEPS,
    Bare,
    at_its_own_pace,
    gathered,
    gone_wrong,
    loss,
    net,
    push_ones,
    rows,
    vector,
)  # fmt: skip
from tests.worlds.simulator.clusters import switched


def worked_out(n_push, n_fetch, rate):
    """One client and SGD at rate 0.1 (1 where the client has a rate), without any server."""
    module, server, total, path = net(), vector(net()), torch.zeros(ELEMENTS).double(), []
    for step in range(STEPS):
        if step % n_fetch == 0:
            nn.utils.vector_to_parameters(server.clone(), module.parameters())
        path.append(vector(module))
        module.zero_grad()
        loss(module, *rows(step)).backward()
        gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
        total += gradient if rate is None else rate * gradient
        if rate is not None:
            change = vector(module) - rate * gradient
            nn.utils.vector_to_parameters(change, module.parameters())
        if (step + 1) % n_push == 0 or step == STEPS - 1:
            server -= total * (0.1 if rate is None else 1.0)
            total.zero_()
    return torch.stack([*path, server])


@pytest.mark.parametrize("n_push, n_fetch, rate", [
    (2, 3, None), (3, 2, None), (4, 1, None), (1, 4, 0.05), (2, 3, 0.05), (4, 5, 0.05),
])  # fmt: skip
def test_a_client_that_pushes_and_fetches_at_its_own_pace(n_push, n_fetch, rate):
    plan = shard_plan(3, 2, ELEMENTS)
    results = run(at_its_own_pace, 3, plan, n_push, n_fetch, rate, on=switched(3))
    path = torch.cat([results[2], gathered(results, plan)[None]])
    torch.testing.assert_close(path, worked_out(n_push, n_fetch, rate), rtol=0, atol=1e-12)


def test_fewer_pushes_and_fetches_send_fewer_bytes():
    trace, plan = Trace(), shard_plan(3, 1, 10)
    run(push_ones, 3, plan, 12, asynchronous(), n_push=3, n_fetch=4, on=switched(3), trace=trace)
    assert trace.sent_bytes[0] == 2 * 3 * (REPLY_BYTES + 40)
    assert trace.sent_bytes[1] == (3 + 4 + 1) * REQUEST_BYTES + 4 * 40


def in_micro_batches(comm, plan, shares, rate):
    """Each client's rows of every micro-batch as `shares` [micro-batches][clients] has them."""
    module = net()
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(rate)).values
    with Client(comm, plan, module, n_push=len(shares), n_fetch=len(shares)) as client:
        for step, counts in enumerate(shares):
            client.pull()
            mine = plan.clients.index(comm.rank)
            x, y = (each.split(counts)[mine] for each in rows(step, sum(counts)))
            loss(module, x, y).backward()
            client.push(len(x))


@pytest.mark.parametrize("shares", [
    [[3, 1], [1, 3]], [[4, 0], [1, 3]], [[0, 5], [5, 0], [2, 3]], [[1, 2, 5], [8, 0, 0]],
], ids=str)  # fmt: skip
def test_uneven_micro_batches_are_those_of_the_large_batch(shares):
    """All micro-batches are of as many rows in all, however they lie with the clients."""
    clients, module = len(shares[0]), net()
    plan = shard_plan(clients + 1, 1, ELEMENTS)
    values = run(in_micro_batches, clients + 1, plan, shares, 1.0, on=switched(clients + 1))[0]
    for step, counts in enumerate(shares):
        loss(module, *rows(step, sum(counts))).backward()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
    torch.testing.assert_close(values, vector(net()) - gradient, rtol=0, atol=1e-12)


def not_a_number(client, module, samples=1):
    module.w.grad = torch.full_like(module.w, float("nan"))
    client.push(samples)


def half_a_sample(client, module):
    client.push(0.5)


def not_a_sample(client, module):
    not_a_number(client, module, samples=0)


def test_of_no_samples_not_even_nan_counts():
    """Rank 2 pushes twice, the first time the gradient of a mean over nothing."""
    account, *_ = run(gone_wrong, 3, shard_plan(3, 1, 4), not_a_sample, on=switched(3))
    assert account.lost == () and (account.values == -2).all()


@pytest.mark.parametrize("wrong, sentence", [
    (not_a_number, "FloatingPointError: gradients must be finite; this one is not: w on rank 2"),
    (half_a_sample, "ValueError: rank 2: the number of samples of a gradient is a whole number, "
                    "0 or more, not 0.5"),
])  # fmt: skip
def test_a_client_that_fails_in_its_program_is_named_and_the_other_goes_on(wrong, sentence):
    account, other, said = run(gone_wrong, 3, shard_plan(3, 1, 4), wrong)
    assert (other, said) == (None, sentence)
    assert account.lost == (2,) and (account.values == -1).all()


def cast(client, module):
    module.double().float()


def reassigned(client, module):
    module.w = nn.Parameter(torch.zeros_like(module.w))


@pytest.mark.parametrize("change", [cast, reassigned])
def test_a_module_that_is_no_longer_what_is_trained_is_told(change):
    """It would have gone on with weights that no server sends to, and pushed nothing."""
    account, other, said = run(gone_wrong, 3, shard_plan(3, 1, 4), change, on=switched(3))
    assert said.startswith("RuntimeError: rank 2: w is not trained") and other is None
    assert account.lost == (2,) and (account.values == -1).all()


def leaves_twice(comm, plan):
    module = Bare(4)
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(1.0)).lost
    with Client(comm, plan, module, n_push=2) as client:
        client.pull()
        module.w.grad = torch.ones_like(module.w)
        client.push()
        client.stop()
        said = []
        for call in (client.pull, client.push):
            with pytest.raises(RuntimeError) as caught:
                call()
            said.append(str(caught.value))
    return said


def test_leave_is_taken_once():
    """A second leave would wait for servers that have gone."""
    assert run(leaves_twice, 2, shard_plan(2, 1, 4), timeout=30) == [
        (), ["rank 1 has taken leave of its servers"] * 2
    ]  # fmt: skip


def skips_a_bad_batch(comm, plan):
    """The second of three gradients is not finite, and left out."""
    module = Bare(2)
    if comm.rank in plan.servers:
        return serve(comm, plan, module, sgd(1.0)).values.tolist()
    with Client(comm, plan, module, n_push=2) as client:
        client.pull()
        for value, samples in ((1.0, 1), (math.inf, 5), (4.0, 2)):
            module.w.grad = torch.full((2,), value)
            with contextlib.suppress(FloatingPointError):
                client.push(samples)


def test_a_batch_that_was_refused_has_no_weight():
    assert run(skips_a_bad_batch, 2, shard_plan(2, 1, 2), on=switched(2))[0] == [-6.0, -6.0]


def eager(comm, plan):
    if comm.rank in plan.servers:
        return serve(comm, plan, Bare(4), sgd(1.0)).lost
    with Client(comm, plan, Bare(4)) as client:
        client.push()


def test_a_push_before_any_pull():
    with pytest.raises(RankError, match="RuntimeError: rank 1 pushes before it has pulled any"):
        run(eager, 2, shard_plan(2, 1, 4))
