"""Buckets whose mean is wanted in pieces."""

import pytest
import torch
from torch import nn

from course.parallel.data.buckets import Layout
from course.parallel.sharded.flat_shards import FlatShards
from course.parallel.sharded.sharded_buckets import ShardedBucket, ShardLayout
from tests.parallel.sharded.test_flat_shards import Rank


def made(stage, rank=1):
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]
    return parameters, ShardedBucket(FlatShards(parameters, Rank(rank, 2), stage, "not here"))


def filled(stage):
    """Two parameters of which the second rank has the last 3 of 7 elements."""
    parameters, bucket = made(stage)
    for number, p in enumerate(parameters, start=1):
        p.grad = torch.full_like(p, number)
        bucket.fill(p)
    bucket.finalize(1.0, 2.0, 0.0, 0.0)
    bucket.read_totals()
    return parameters, bucket


@pytest.mark.parametrize("stage", [1, 2])
def test_gradients_move_in_and_the_ranks_piece_comes_out(stage):
    (first, second), bucket = filled(stage)
    assert first.grad is None and second.grad is None
    bucket.reduced()
    assert (bucket.flat is None) == (stage == 2)
    bucket.copy_out(1.0)
    shards = bucket.shards.shards
    assert shards[first].grad.tolist() == [] and shards[second].grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("stage", [1, 2])
def test_what_shards_have_from_earlier_is_added_to(stage):
    (first, second), bucket = filled(stage)
    bucket.copy_out(1.0)
    second.grad = torch.ones(2, 2)
    bucket.fill(second)
    bucket.finalize(1.0, 2.0, 0.0, 0.0)
    bucket.read_totals()
    bucket.copy_out(1.0)
    assert bucket.shards.shards[second].grad.tolist() == [3.0] * 3


def test_in_stage_1_the_gradient_is_a_part_of_the_bucket():
    (_, second), bucket = filled(1)
    bucket.copy_out(1.0)
    memory = bucket.shards.shards[second].grad.untyped_storage()
    assert memory._cdata == bucket.flat.untyped_storage()._cdata


def test_whose_part_is_not_finite_is_noted_before_the_sum():
    parameters, bucket = filled(2)
    bucket.view(parameters[1])[0, 0] = float("inf")
    assert not bucket.finite
    assert [bucket.own_is_finite(p) for p in parameters] == [True, False]


def test_buckets_stay_and_only_their_order_follows_backward():
    net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)])
    groups = [[layer.weight, layer.bias] for layer in net]
    buckets = [ShardedBucket(FlatShards(group, Rank(0, 2), 2, "")) for group in groups]
    layout = ShardLayout(net, buckets)
    assert isinstance(layout, Layout) and layout.buckets == buckets[::-1]
    layout.cut([net[1].bias, net[0].weight, net[1].weight])
    assert layout.buckets == [buckets[1], buckets[0]]
    assert layout.bucket_of[net[0].bias] is buckets[0]
