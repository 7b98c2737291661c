"""Windows: which places they see, who owns them, and what can be computed before borders come."""

import itertools

import pytest
import torch

from course.parallel.array import Box, part
from course.parallel.spatial.windows import Window, windowed
from course.worlds import RankError, run
from tests.parallel.array.test_fetch import drawn

WINDOWS = [Window(k, s, b, a, d) for k, s, b, a, d in itertools.product(
    (1, 2, 3, 4), (1, 2, 3), (0, 1, 2), (0, 1), (1, 2))]  # fmt: skip


@pytest.mark.parametrize("length", [5, 8, 13])
def test_windows_are_those_of_torch(length):
    """On a padded line of its own places each window of `unfold` says what it sees."""
    for window in WINDOWS:
        places = torch.arange(-window.before, length + window.after).double()[None, None, None]
        if places.shape[-1] < window.reach + 1:
            with pytest.raises(ValueError, match="does not fit on an axis of"):
                window.count(length)
            continue
        seen = torch.nn.functional.unfold(places, (1, window.kernel), (1, window.dilation), 0,
                                          (1, window.stride))[0]  # fmt: skip
        assert window.count(length) == seen.shape[1]
        for start, stop in itertools.combinations(range(seen.shape[1] + 1), 2):
            needed = seen[:, start:stop]
            assert window.needs(start, stop) == (needed.min(), needed.max() + 1)
        inside = [n for n in range(seen.shape[1]) if seen[0, n] >= 2 and seen[-1, n] < length - 1]
        first, stop = window.inside(2, length - 1)
        assert list(range(first, stop)) == inside or (stop <= first and not inside)


def test_a_window_belongs_to_the_rank_that_owns_its_middle():
    for window in WINDOWS:
        for cut in range(1, 12):
            if 12 + window.before + window.after <= window.reach:
                continue
            first, middle, count = window.cuts((0, cut, 12))
            assert (first, count) == (0, window.count(12))
            owned = [n * window.stride - window.before + window.reach / 2 < cut
                     for n in range(count)]  # fmt: skip
            assert sum(owned) == middle


def looked_at(comm, order):
    """In which order answers are computed and messages waited for."""
    x = part(comm, drawn(1, 1, 8, 8), (1, 1, comm.size, 1))
    computed = []

    def compute(seen, box):
        computed.append((box, tuple(seen.shape[2:]), comm.meter.received_messages))
        return seen[:, :, 1:-1, 1:-1]

    windowed(x, [Window(3, 1, 1, 1)] * 2, compute)
    return computed


def test_the_interior_is_computed_before_any_border_has_come():
    (inner, *borders), *_ = run(looked_at, 2, None, timeout=5, checked=False)
    assert inner == (Box.of((1, 3), (1, 7)), (4, 8), 0)
    assert {received for *_, received in borders} == {1}
    places = sum(box.size for box, *_ in (inner, *borders))
    assert places == 32  # every answer of the rank once
    assert [shape for _, shape, _ in borders] == [(4, 3), (4, 3), (3, 10), (3, 10)]


def no_border(comm):
    """Pools that fit the cut: nothing is sent."""
    x = part(comm, drawn(1, 2, 8, 4), (1, 1, comm.size, 1))
    local, layout = windowed(x, [Window(2, 2)] * 2, lambda seen, box: seen[:, :, ::2, ::2])
    return comm.meter.sent_messages, str(layout)


def test_windows_that_fit_the_cut_send_nothing():
    assert run(no_border, 2, timeout=5) == [(0, "1 x 2 x 4 x 2 cut 1 x 1 x 2 x 1")] * 2


def channels_cut(comm):
    windowed(part(comm, drawn(1, 4, 6), (1, comm.size, 1)), [Window(3)], lambda seen, box: seen)


def test_channels_cannot_be_cut():
    with pytest.raises(RankError, match="rank 0: a window sees all channels: axis 1 of 1 x 4 x 6"):
        run(channels_cut, 2, timeout=5)
