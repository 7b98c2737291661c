"""The named schedules have their published bubbles, and their live micro-batches."""

import pytest

from course.parallel.pipeline import (
    gpipe,
    interleaved,
    one_forward_one_backward,
    simulate,
    zero_bubble,
)

SIZES = [(1, 3), (2, 2), (4, 8), (4, 4), (3, 7), (8, 24)]


@pytest.mark.parametrize("p, m", [*SIZES, (4, 2), (4, 1)])
def test_gpipe_and_1f1b_have_one_bubble_and_different_memory(p, m):
    early, late = simulate(gpipe(p, m)), simulate(one_forward_one_backward(p, m))
    assert early.bubble == pytest.approx((p - 1) / (m + p - 1))
    assert late.bubble == pytest.approx((p - 1) / (m + p - 1))
    assert early.seconds == late.seconds == pytest.approx((m + p - 1) * 3)
    assert early.peak_live == [m] * p
    assert late.peak_live == [min(m, p - rank) for rank in range(p)]


@pytest.mark.parametrize("p, m", [(4, 8), (2, 4), (3, 9)])
@pytest.mark.parametrize("v", [1, 2, 4])
def test_interleaving_divides_the_bubble(p, m, v):
    timing = simulate(interleaved(p, m, v), 1 / v, 2 / v)
    assert timing.seconds / (3 * m) - 1 == pytest.approx((p - 1) / (v * m))


def test_interleaving_pays_with_live_chunks():
    assert simulate(interleaved(4, 8, 2)).peak_live == [11, 9, 7, 5]


@pytest.mark.parametrize("p, m", [(4, 8), (3, 7), (8, 24)])
def test_zero_bubbles(p, m):
    """Idle between a rank's own first and last step: (p-1)(TF + TB) of 1F1B, where TB is whole."""
    before = simulate(one_forward_one_backward(p, m))
    h1, h2 = simulate(zero_bubble(p, m)), simulate(zero_bubble(p, m, 2))
    assert max(before.gaps_s) == 3 * (p - 1)
    assert max(h1.gaps_s) == p - 1
    assert h2.gaps_s == [0.0] * p
    assert h1.seconds == h2.seconds == 3 * m + p - 1
    assert (h1.peak_live, h2.peak_live) == ([p] * p, [2 * p - 1] * p)
    timing = simulate(zero_bubble(p, m), 1.0, 1.8, weight=0.6)  # TF + TI - TW
    assert max(timing.gaps_s) == pytest.approx((p - 1) * (1.0 + 1.2 - 0.6))


@pytest.mark.parametrize("make, sentence", [
    (lambda: gpipe(0, 3), "ranks is a whole number, 1 or more, not 0"),
    (lambda: one_forward_one_backward(2, 0), "micro_batches is a whole number, 1 or more, not 0"),
    (lambda: zero_bubble(2, 2, 0), "lead is a whole number"),
    (lambda: interleaved(2, 2, 1.5), "chunks is a whole number"),
    (lambda: interleaved(4, 9, 2), "in 2 equal groups of 4 or more, and 9 cannot"),
])  # fmt: skip
def test_impossible_sizes_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
