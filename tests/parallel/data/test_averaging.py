"""How a bucket becomes the mean over ranks: in one message, or its weights before its values."""

import math

import pytest
import torch
from torch import nn

from course.parallel.data.averaging import Averaging
from course.parallel.data.buckets import Bucket
from course.worlds import run
from tests.worlds.simulator.clusters import switched

ROWS = 1.0, 3.0  # of rank 0, of rank 1: their gradients are 1 and 2


def bucket_of(rank, dtype=torch.float64, wide=False, gradient=None):
    p = nn.Parameter(torch.zeros(2, dtype=dtype))
    p.grad = torch.full_like(p, rank + 1 if gradient is None else gradient)
    return Bucket([p], wide)


def averaged(comm, averaging, dtype=torch.float64, gradients=(None, None), rows=ROWS):
    """What a parameter's gradient becomes, and how many messages that took."""
    bucket = bucket_of(comm.rank, dtype, averaging.hook is not None, gradients[comm.rank])
    weight = rows[comm.rank] if averaging.mean else 1.0
    bucket.factor = averaging.factor(bucket, weight)
    bucket.fill(bucket.parameters[0])
    bucket.finalize(bucket.factor, weight, 0.0, 0.0)
    averaging(comm, bucket)
    bucket.copy_out(averaging.divisor(bucket))
    return bucket.parameters[0].grad[0].item(), comm.meter.sent_messages


def on_two(averaging, **given):
    return run(lambda comm: averaged(comm, averaging, **given), 2, on=switched(2))


def sums(comm, bucket):
    """A hook that does on two ranks what all_reduce does."""
    theirs = torch.empty_like(bucket.values)
    comm.exchange(bucket.values, 1 - comm.rank, theirs, 1 - comm.rank)
    bucket.values.add_(theirs)


MEAN = (1 * 1.0 + 3 * 2.0) / 4


def test_the_mean_by_rows_takes_one_all_reduce():
    assert on_two(Averaging()) == [(MEAN, 2)] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_summed_by_shares_of_the_weight(dtype):
    """Weighted before, 60 000 rows of 2.0 would overflow."""
    assert on_two(Averaging(), dtype=dtype, rows=(20_000.0, 60_000.0)) == [(MEAN, 4)] * 2


def test_a_hook_finds_each_ranks_share_of_the_mean():
    assert [mean for mean, _ in on_two(Averaging(hook=sums))] == [MEAN] * 2


@pytest.mark.parametrize("hook", [None, sums])
def test_a_sum_is_not_weighted(hook):
    found = on_two(Averaging(mean=False, hook=hook))
    assert [total for total, _ in found] == [3.0] * 2


@pytest.mark.parametrize("hook", [None, sums])
def test_no_rows_anywhere_are_no_gradient_and_no_nan(hook):
    found = on_two(Averaging(hook=hook), rows=(0.0, 0.0))
    assert [mean for mean, _ in found] == [0.0] * 2


def remembered(comm):
    seen = []
    averaging = Averaging(hook=lambda comm, bucket: seen.append(bucket.values.clone()))
    for gradient in (math.nan, 2.0):
        averaged(comm, averaging, gradients=(gradient, 1.0))
    return len(seen), [values.isfinite().all().item() for values in seen]


def test_a_hook_never_sees_what_is_not_finite_on_any_rank():
    """It would keep it for ever."""
    assert run(remembered, 2, on=switched(2)) == [(1, [True])] * 2


def unused(comm):
    bucket = Bucket([nn.Parameter(torch.zeros(2))], wide=True)
    bucket.finalize(1.0, 1.0, 0.0, 0.0)
    Averaging(hook=lambda comm, bucket: 1 / 0)(comm, bucket)


def test_a_hook_is_not_asked_of_what_nobody_uses():
    """What it owes a parameter that rests would be sent, and dropped."""
    run(unused, 2, on=switched(2))


def test_what_gradients_are_multiplied_by_and_their_sums_divided_by():
    whole, half = bucket_of(0), bucket_of(0, torch.float16)
    for bucket in (whole, half):
        bucket.totals = [1.0, 8.0, 0.0, 0.0, 0.0]
    found = [(a.factor(b, 5.0), a.divisor(b)) for b in (whole, half)
             for a in (Averaging(), Averaging(mean=False), Averaging(hook=sums))]  # fmt: skip
    assert found == [(5, 8), (5, 1), (1, 1), (1, 1), (1, 1), (1, 1)]
    assert Averaging().factor(whole, 0.0) == 1  # by 0 even nan would be lost from the account
