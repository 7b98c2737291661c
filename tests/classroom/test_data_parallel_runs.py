"""Ways to average are compared with one process; prices, shards and roundings are counted."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

from course.classroom.data_parallel_runs import (
    errors_of_bf16,
    farthest,
    flat_gradients,
    on_shards,
    price,
    serial_adam,
    told_agreement,
    told_distance,
    told_weights,
    weights_by,
)
from course.cluster.fabric import one_switch
from course.cluster.hardware import ETHERNET_10G, FREE
from course.collectives import all_reduce
from course.learning.training.digits import backward, digit_net, digit_split
from course.parallel.flat_parameters import FlatParameters
from course.worlds import run, simulated

IMAGES = digit_split(torch.float64).training
FOUR = one_switch(4, FREE, ETHERNET_10G)


def train(net, optimizer, parts, average):
    for x, y in parts:
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        average()
        optimizer.step()
    return parameters_to_vector(net.parameters()).detach()


def by_all_reduce(comm, net):
    def average():
        for parameter in net.parameters():
            all_reduce(comm, parameter.grad, "mean", algorithm="ring")

    return net, average


def nothing(comm, net):
    return net, lambda: None


def on(ranks):
    return simulated(one_switch(ranks, FREE, ETHERNET_10G))


def test_the_right_way_is_that_of_one_process_and_no_way_is_not():
    (alone,) = run(weights_by, 1, train, IMAGES, nothing, 3, on=on(1))
    right = run(weights_by, 2, train, IMAGES, by_all_reduce, 3, on=on(2))
    wrong = run(weights_by, 2, train, IMAGES, nothing, 3, on=on(2))
    assert farthest(alone, right) < 1e-12 < 1e-4 < farthest(alone, wrong)
    other = run(weights_by, 2, train, IMAGES, by_all_reduce, 3, (0, 1), on=on(2))
    assert farthest(other[0], other) > 0.1


def test_a_price_counts_messages_of_22_tensors():
    images = IMAGES.x[:8].float(), IMAGES.y[:8]
    step = price(by_all_reduce, images, FOUR)
    assert step.messages == 22 * 2 * 3
    assert step.sent_bytes == pytest.approx(4 * 2 * 3 / 4 * sum(
        p.numel() for p in digit_net(0, [64, *[32] * 10, 10]).parameters()), rel=0.02)  # fmt: skip
    assert step.ms >= 1e3 * step.messages * 20e-6


def test_shards_tell_state_and_bytes_of_a_step():
    def program(comm, net, parts, clip):
        assert len(parts) == 5 and clip == "clip"
        for _ in parts:
            comm.exchange(torch.zeros(10), 1 - comm.rank, torch.zeros(10), 1 - comm.rank)
        return torch.ones(2), {"step": torch.tensor(5.0), "mean": torch.zeros(3)}

    for weights, state_bytes, step_bytes in run(on_shards, 2, program, IMAGES, "clip", 5, on=on(2)):
        assert weights.tolist() == [1, 1] and state_bytes == 12 and step_bytes == 40


def test_adam_on_one_process_is_clipped_where_that_is_asked_for():
    free, again = serial_adam(train, IMAGES, steps=3), serial_adam(train, IMAGES, steps=3)
    clipped = serial_adam(train, IMAGES, lambda weights: clip_grad_norm_(weights, 1e-9), steps=3)
    assert torch.equal(free, again) and farthest(free, [clipped]) > 1e-3


def test_errors_are_relative_and_bytes_are_those_of_each_way():
    def exact(comm, x, op):
        all_reduce(comm, x, op)

    errors, sent = errors_of_bf16(4, exact, FOUR)
    assert errors[1] < 1e-6 < 1e-3 < errors[0] < 0.01
    assert 2 * sent[0] == sent[1]


def test_flat_gradients_are_those_of_each_batch_alone():
    net = digit_net(0).double()
    parts = [(IMAGES.x[:8], IMAGES.y[:8]), (IMAGES.x[8:12], IMAGES.y[8:12])]
    found = [gradient.clone() for gradient in flat_gradients(FlatParameters(net), parts)]
    for (x, y), gradient in zip(parts, found, strict=True):
        backward(net, x, y)
        assert torch.equal(gradient, parameters_to_vector(p.grad for p in net.parameters()))


def test_agreement_is_told_in_words():
    serial = torch.ones(2000)
    same, other = [serial, serial + 1e-15], [serial, serial + 1e-3, serial]
    assert told_weights(serial, same) == (
        "2,000 weights after 20 steps, on 2 ranks and on 1:\napart by less than 1e-12: True"
    )
    assert told_weights(serial, other).endswith(
        "on 3 ranks and on 1:\napart by less than 1e-12: False"
    )
    assert told_agreement(serial, {"a": same, "b": other}) == (
        "a, 2 ranks and 1, apart by up to 1e-12\nb, 3 ranks and 1, apart by up to 0.001"
    )
    assert told_distance(1e-10) == "the same" and told_distance(0.0431) == "apart by up to 0.043"
