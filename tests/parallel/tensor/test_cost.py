"""What is computed and sent is what the formulas say, with numbers and without."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, FREE, V100
from course.collectives import cost as collectives
from course.parallel.array.layout import even_cuts
from course.parallel.tensor import (
    MLP,
    VocabEmbedding,
    cost,
    load_whole_state_dict,
    tensor_parallel,
    vocab_cross_entropy,
    whole_state_dict,
)
from course.worlds import run, simulated
from tests.parallel.tensor import serial
from tests.parallel.tensor.serial import drawn
from tests.parallel.tensor.test_plan import PLAN, loss_of, tokens_of

ALGORITHMS = tuple(collectives.all_reduces(2, 1, 4))


def spent(comm, call):
    """(what it returns, operations, bytes and messages sent)."""
    before = dataclasses.replace(comm.meter)
    with FlopCounterMode(display=False) as counter:
        value = call()
    sent = comm.meter.sent_bytes - before.sent_bytes
    return value, (counter.get_total_flops(), sent, comm.meter.sent_messages - before.sent_messages)


def mlps(comm, hidden, features, rows, algorithm):
    """Of an MLP's way there and back; rows are a number, or cuts."""
    whole = serial.made(serial.MLP, features, hidden[-1], features, bias=False)
    mine, found = MLP(comm, whole.up, whole.down, cuts=hidden, algorithm=algorithm), []
    count = rows if isinstance(rows, int) else rows[comm.rank + 1] - rows[comm.rank]
    for _ in range(5):
        x = drawn(count, features).requires_grad_()
        y, there = spent(comm, lambda x=x: mine(x, None if isinstance(rows, int) else rows))
        _, back = spent(comm, y.sum().backward)
        found.append((there, back))
    return found


def all_mlps(comm, hidden, features, cases):
    return [mlps(comm, hidden, features, *case) for case in cases]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_an_mlp_computes_and_sends_what_the_formula_says(ranks):
    hidden, features = (0, *[3] * (ranks - 1), 17), 12
    cases = [(10, algorithm) for algorithm in ALGORITHMS]
    cases += [((0, *[4] * (ranks - 1), 10), "ring")]
    for rank, found in enumerate(run(all_mlps, ranks, hidden, features, cases, timeout=20)):
        for (rows, algorithm), uses in zip(cases, found, strict=True):
            layer = cost.mlp(hidden, features, rows, 8, algorithm)
            expected = tuple(
                (flops[rank], way.sent_bytes[rank], way.sent_messages[rank])
                for flops, way in zip(layer[:2], layer[2:])
            )
            assert uses == [expected] * 5, (rows, algorithm)


def test_sums_moved_against_products_computed():
    """b(m + n) numbers, and 2bmn operations: double every size, and the one doubles."""
    small, large = (cost.mlp(even_cuts(4 * n, 4), n, 64, 4) for n in (256, 512))
    assert large.forward_flops == [4 * flops for flops in small.forward_flops]
    assert large.forward.sent_bytes == [2 * sent for sent in small.forward.sent_bytes]
    assert sum(small.forward_flops) == 2 * 2 * 64 * 256 * 1024
    assert small.forward.sent_bytes == [2 * 3 * 64 * 256 * 4 // 4] * 4
    pair = cost.mlp(even_cuts(1024, 4), 256, even_cuts(64, 4), 4)
    assert pair.forward.sent_bytes == small.forward.sent_bytes  # no more than an all-reduce sends


def ends(comm, vocabulary, features, rows):
    """Bytes and messages of an embedding and of the loss."""
    cuts, tokens = even_cuts(vocabulary, comm.size), tokens_of(0, rows // 2)
    embedding = VocabEmbedding(comm, nn.Embedding(vocabulary, features), algorithm="ring")
    logits = torch.ones(*tokens.shape, cuts[comm.rank + 1] - cuts[comm.rank]).requires_grad_()
    calls = [lambda: embedding(tokens)] + [
        lambda s=s: vocab_cross_entropy(comm, logits, tokens, cuts, label_smoothing=s,
                                        algorithm="ring") for s in (0.0, 0.1)]  # fmt: skip
    found = []
    for call in calls:
        loss, there = spent(comm, call)
        _, back = spent(comm, loss.sum().backward)
        found.append((there[1:], back[1:]))
    return found


def test_an_embedding_and_a_loss_send_nothing_back():
    looked_up = collectives.ring_all_reduce(3, 12 * 5, 4)
    costs = [looked_up, cost.cross_entropy(3, 12, 4), cost.cross_entropy(3, 12, 4, numbers=3)]
    for rank, found in enumerate(run(ends, 3, 11, 5, 12, timeout=10)):
        expected = [(way.sent_bytes[rank], way.sent_messages[rank]) for way in costs]
        assert found == [(each, (0, 0)) for each in expected]


def transformed(comm, device):
    """What a rank sends in two steps of a transformer, and to save and load it."""
    with torch.device(device):
        net = serial.made(serial.Transformer, dropout=0.1)
    tensor_parallel(net, comm, PLAN)
    rows = (0, 0, *[2] * (comm.size - 2), 5)
    torch.manual_seed(0)
    for way in (None, rows):
        loss_of(net, tokens_of(0).to(device), comm, way).backward()
    load_whole_state_dict(net, whole_state_dict(net))
    return dataclasses.astuple(comm.meter)


def test_without_numbers_the_same_is_sent():
    with_numbers, without = (
        run(transformed, 5, device, on=simulated(one_switch(5, FREE, EDR), device=device))
        for device in ("cpu", "meta")
    )
    assert without == with_numbers


def large(comm, features, rows):
    """Seconds of a step of an MLP that fits no GPU."""
    with torch.device("meta"):
        up, down = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
        x = torch.empty(rows, features).requires_grad_()
    mlp = MLP(comm, up, down, algorithm="ring")
    start = comm.clock()
    mlp(x).sum().backward()
    return comm.clock() - start


def test_a_layer_of_ten_billion_parameters_on_16_imagined_gpus():
    features, rows, p = 36_864, 512, 16
    world = simulated(one_switch(p, V100, EDR), device="meta")
    seconds = max(run(large, p, features, rows, on=world, checked=False))
    layer = cost.mlp(even_cuts(4 * features, p), features, rows, 4)
    flops = layer.forward_flops[0] + layer.backward_flops[0]
    assert 8 * features**2 > 10e9
    assert {rank.flops for rank in world.report.ranks} == {flops}
    assert [rank.sent_bytes for rank in world.report.ranks] == [
        a + b for a, b in zip(layer.forward.sent_bytes, layer.backward.sent_bytes)
    ]
    sending = sum(way.seconds(2 * EDR.latency_s, 1 / EDR.bytes_per_s) for way in layer[2:])
    least = flops / V100.flops_per_s + sending
    assert least < seconds < 1.1 * least
