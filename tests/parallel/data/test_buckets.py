"""Gradients side by side in one tensor: what is put in, what is read out, who is in which."""

import math

import pytest
import torch
from torch import nn

from course.parallel.data.buckets import COUNTS, Bucket, Layout, cut_into_buckets
from course.worlds import RankError, run
from tests.worlds.simulator.clusters import switched


def parameter(*shape, dtype=torch.float64, gradient=None):
    p = nn.Parameter(torch.zeros(shape, dtype=dtype))
    if gradient is not None:
        p.grad = torch.full_like(p, gradient)
    return p


def sizes(buckets):
    return [len(bucket.parameters) for bucket in buckets]


# What is in a bucket


def test_values_and_tail_are_parts_of_one_tensor():
    """So that one message carries both."""
    bucket = Bucket([parameter(2, 3), parameter(), parameter(0)])
    assert (len(bucket.values), len(bucket.tail), len(bucket.flat)) == (7, 3 + COUNTS, 10 + COUNTS)
    bucket.flat.copy_(torch.arange(14))
    assert bucket.values.tolist() == list(range(7)) and bucket.tail[0] == 7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_have_their_numbers_in_float32(dtype):
    """65 520 samples are inf in float16, and 257 are 256 in bfloat16."""
    bucket = Bucket([parameter(3, dtype=dtype)])
    assert (bucket.values.dtype, bucket.tail.dtype) == (dtype, torch.float32)
    bucket.finalize(1.0, 65_521, 0.0, 0.0)
    bucket.read_totals()
    assert bucket.counts[0] == 65_521 and bucket.flat is bucket.values
    assert Bucket([parameter(3, dtype=dtype)], wide=True).flat.dtype == torch.float32


def test_each_gradient_has_its_place_in_its_shape():
    a, b = parameter(2, 3, gradient=1), parameter(gradient=2)
    bucket = Bucket([a, b])
    assert bucket.view(a).shape == (2, 3) and bucket.view(b).shape == ()
    bucket.factor = 10.0
    bucket.fill(a)
    assert bucket.values[:6].tolist() == [10] * 6 and not bucket.full
    bucket.fill(b)
    assert bucket.values[6] == 20 and bucket.full and a.grad.eq(1).all()
    assert bucket.part(b).tolist() == [20]


def test_complex_numbers_are_pairs():
    p = parameter(2, dtype=torch.complex128)
    p.grad = torch.tensor([1 + 2j, 3 + 4j]).to(p)
    bucket = Bucket([p])
    bucket.fill(p)
    assert bucket.values.tolist() == [1, 2, 3, 4] and bucket.part(p).dtype == torch.float64
    bucket.tail.fill_(1)
    bucket.read_totals()
    bucket.copy_out(2.0)
    assert p.grad.tolist() == [0.5 + 1j, 1.5 + 2j]


# Ready to be summed


def test_what_was_not_put_in_is_put_in_or_flagged_as_absent():
    there, gathered, absent = parameter(1, gradient=3), parameter(1, gradient=5), parameter(2)
    bucket = Bucket([there, gathered, absent])
    bucket.values.fill_(99)  # of the step before
    bucket.fill(there)
    bucket.finalize(1.0, 7, 0.0, 1.0)
    assert bucket.values.tolist() == [3, 5, 0, 0]
    # Neither of the latter two was part of this backward: only what was put in counts as used.
    assert bucket.tail.tolist() == [1, 0, 0, 7, 0, 1, 0]
    assert not bucket.filled and bucket.weight == 7


def test_weights_that_changed_on_the_way_count_for_what_is_in_already():
    p = parameter(2, gradient=1)
    bucket = Bucket([p])
    bucket.factor = 4.0
    bucket.fill(p)
    bucket.finalize(6.0, 6, 0.0, 0.0)
    assert bucket.values.tolist() == [6, 6]


def test_of_no_samples_not_even_nan_counts():
    p = parameter(2, gradient=math.nan)
    bucket = Bucket([p])
    bucket.fill(p)
    bucket.finalize(1.0, 0, 0.0, 0.0)
    assert bucket.values.tolist() == [0, 0] and bucket.tail.tolist() == [1, 0, 0, 0, 0]
    assert bucket.own_is_finite(p)


# What comes back


def summed(*flags, counts=(8.0, 0.0, 0.0, 0.0), values=6.0):
    """Parameters of one number each and their bucket, as if it held sums over ranks."""
    parameters = [parameter(1) for _ in flags]
    bucket = Bucket(parameters)
    bucket.values.fill_(values)
    bucket.tail.copy_(torch.tensor([*flags, *counts]))
    bucket.read_totals()
    return bucket, parameters


def test_who_is_used_by_nobody_has_no_gradient():
    bucket, (one, none, three) = summed(1.0, 0.0, 3.0)
    assert bucket.in_use == [one, three] and bucket.counts == [8, 0, 0, 0]
    bucket.copy_out(2.0)
    assert [one.grad.item(), none.grad, three.grad.item()] == [3, None, 3]
    one.grad.zero_()
    kept = one.grad
    bucket.copy_out(1.0)
    assert kept is one.grad and kept.item() == 6  # in its place, as optimisers have it


def test_without_memory_all_is_taken_for_used():
    bucket = Bucket([nn.Parameter(torch.zeros(3, device="meta"))])
    bucket.read_totals()
    assert bucket.in_use == bucket.parameters and bucket.counts == [1, 0, 0, 0] and bucket.finite


def test_values_that_are_not_finite_are_found_and_an_overflow_of_their_sum_is_none():
    bucket, (one, two) = summed(1.0, 1.0, values=1e308)
    assert not bucket.values.sum().isfinite() and bucket.finite and bucket.not_finite() == []
    bucket.view(two).fill_(math.nan)
    assert not bucket.finite and bucket.not_finite() == [two]
    unused, (_, rests) = summed(1.0, 0.0)
    unused.view(rests).fill_(math.inf)
    assert unused.not_finite() == []  # whatever is there, nobody is given it


def test_whose_part_was_not_finite():
    bucket, (one, two) = summed(1.0, 1.0)
    one.grad, bucket.weight = torch.full_like(one, math.inf), 3.0
    assert not bucket.own_is_finite(one) and bucket.own_is_finite(two)


# Which parameter is in which bucket


def test_a_bucket_is_closed_once_it_is_full():
    layers = [nn.Linear(10, 10) for _ in range(3)]  # weights of 400 bytes, biases of 40
    parameters = [p for layer in layers for p in reversed(list(layer.parameters()))]
    for nbytes, expected in ((440, [2, 2, 2]), (400, [2, 2, 2]), (441, [3, 3]), (1e9, [6])):
        buckets = cut_into_buckets(parameters, nbytes)
        assert sizes(buckets) == expected
        assert [p for bucket in buckets for p in bucket.parameters] == parameters


def test_a_bucket_holds_one_dtype():
    dtypes = torch.float32, torch.float32, torch.float64, torch.float32
    assert sizes(cut_into_buckets([parameter(1, dtype=d) for d in dtypes], 1e9)) == [2, 1, 1]


class Three(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (parameter(n) for n in (1, 2, 3))


def alone(comm, act):
    return act(comm, Three())


def on_one_rank(act):
    return run(alone, 1, act, on=switched(1))[0]


def test_buckets_begin_in_the_order_in_which_backward_comes_by():
    net = Three()
    net.b.requires_grad = False
    layout = Layout(net, 1, wide=False)
    assert [bucket.parameters for bucket in layout.buckets] == [[net.c], [net.a]]
    assert layout.bucket_of[net.c] is layout.buckets[0] and net.b not in layout.bucket_of


def test_buckets_are_the_same_until_a_parameter_is_frozen_unfrozen_or_cast():
    def changes(comm, net):
        layout, seen = Layout(net, 1, wide=False), []
        for change in (lambda: None, lambda: net.b.requires_grad_(False),
                       lambda: net.b.requires_grad_(True), net.float):  # fmt: skip
            before = layout.buckets
            change()
            layout.refresh(comm)
            seen.append((layout.buckets is before, sizes(layout.buckets)))
        return seen, layout.buckets[0].flat.dtype

    seen, dtype = on_one_rank(changes)
    assert seen == [(True, [1] * 3), (False, [1] * 2), (False, [1] * 3), (False, [1] * 3)]
    assert dtype == torch.float32


def frozen_differently(comm):
    net = Three()
    layout = Layout(net, 1, wide=False)
    (net.a, net.b)[comm.rank].requires_grad = False
    layout.refresh(comm)


def test_ranks_that_freeze_different_parameters_are_told():
    with pytest.raises(RankError, match=r"is a \(float64 \[1\](, frozen)?\) on rank"):
        run(frozen_differently, 2, on=switched(2))


def ordered(comm, arrived):
    """The names in their order after rank 0's first backward came by `arrived` of them."""
    net = Three()
    layout = Layout(net, 1e9, wide=False)
    mine = {getattr(net, name): None for name in arrived[comm.rank]}
    layout.order(comm, mine)
    first = layout.buckets[0]
    layout.order(comm, {})  # once and for all
    assert layout.buckets[0] is first
    return "".join(layout.names[p] for p in first.parameters)


@pytest.mark.parametrize("arrived, order", [("bca", "bca"), ("a", "acb"), ("", "cba")])
def test_buckets_follow_rank_0s_first_backward_on_all_ranks(arrived, order):
    assert run(ordered, 2, [arrived, "cab"], on=switched(2)) == [order] * 2


def test_a_parameter_that_is_another_object_now_is_told():
    net = Three()
    layout = Layout(net, 1, wide=False)
    layout.check_unchanged()
    net.b = parameter(2)
    with pytest.raises(
        RuntimeError, match="^b was replaced since its module was wrapped, and is not"
    ):
        layout.check_unchanged()
