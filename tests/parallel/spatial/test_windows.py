"""Windows: which places they see, who owns them, and what can be computed before borders come."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from course.cluster.fabric import one_switch
from course.cluster.hardware import FREE, NDR
from course.parallel.array import Box, cut_at, evenly, part
from course.parallel.spatial.windows import Window, windowed, worth_hiding
from course.worlds import RankError, run, simulated
from tests.parallel.array.test_fetch import drawn, off

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


def looked_at(comm, early):
    """In which order answers are computed and messages waited for, and the answers."""
    x = part(comm, drawn(1, 1, 8, 8), (1, 1, comm.size, 1))
    computed = []

    def compute(seen, box):
        computed.append((box, tuple(seen.shape[2:]), comm.meter.received_messages))
        return seen[:, :, 1:-1, 1:-1]

    local, _ = windowed(x, [Window(3, 1, 1, 1)] * 2, compute, early=early)
    assert torch.equal(local, x.local)
    return computed


def test_the_interior_is_computed_before_any_border_has_come():
    (inner, *borders), *_ = run(looked_at, 2, True, timeout=5, checked=False)
    assert inner == (Box.of((1, 3), (1, 7)), (4, 8), 0)
    assert {received for *_, received in borders} == {1}
    places = sum(box.size for box, *_ in (inner, *borders))
    assert places == 32  # every answer of the rank once
    assert [shape for _, shape, _ in borders] == [(4, 3), (4, 3), (3, 10), (3, 10)]


def test_all_is_computed_at_once_where_nothing_is_to_be_hidden():
    (all_of_it,), *_ = run(looked_at, 2, False, timeout=5, checked=False)
    assert all_of_it == (Box.of((0, 4), (0, 8)), (6, 10), 1)


def hidden(comm):
    return worth_hiding(part(comm, torch.zeros(4, 2, device=comm.device), (comm.size, 1)))


def test_what_crosses_a_cable_or_goes_beside_a_device_is_worth_hiding():
    assert run(hidden, 2) == [False] * 2
    assert run(hidden, 2, on=simulated(one_switch(2, FREE, NDR))) == [True] * 2
    assert run(hidden, 1, on=simulated(one_switch(1, FREE, NDR), device="meta")) == [True]


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


def net():
    torch.manual_seed(0)
    last = nn.ConvTranspose2d(4, 2, 2, 3)  # between its answers is the bias alone
    return nn.Sequential(nn.Conv2d(2, 4, 2), nn.ReLU(inplace=True), nn.AvgPool2d(2), last).double()


def slopes(net, x, recomputed):
    """Of all weights, where layers are computed again on the way back or are not."""
    found = checkpoint(net, x, use_reentrant=False) if recomputed else net(x)
    found.square().sum().backward()
    return [p.grad for p in net.parameters()]


def recomputed(comm):
    """The errors of slopes with even parts and where only one rank has any, and a type."""
    x, errors = drawn(1, 2, 9, 6), []
    for cuts in (evenly((9,), (comm.size,)).cuts[0], (0, *[9] * comm.size)):
        expected = slopes(net(), x, recomputed=False)
        found = slopes(net(), part(comm, x, layout=cut_at(x.shape, {2: cuts})), recomputed=True)
        errors += [off(a - b) for a, b in zip(expected, found, strict=True)]
        with torch.autocast("cpu", torch.bfloat16):
            dtype = net().float()(part(comm, x.float(), layout=cut_at(x.shape, {2: cuts}))).dtype
    return max(errors), dtype


def test_a_rank_without_windows_takes_part_in_checkpoints_and_has_the_type_of_the_others():
    for error, dtype in run(recomputed, 3, timeout=60):
        assert error < 1e-12 and dtype == torch.bfloat16


def refused(comm):
    functional.conv2d(part(comm, drawn(2, 6, 6), (1, 1, 2)), drawn(2, 2, 3, 3))


def test_an_image_without_a_batch_is_refused():
    sentence = r"rank \d: 2 axes of windows are behind those of batch and channels: not so in the "
    with pytest.raises(RankError, match=sentence):
        run(refused, 2, on=simulated(one_switch(2, FREE, NDR)))


def kept(function):
    """Bytes that autograd keeps of what `function` computes, each block of memory once."""
    blocks = {}

    def note(tensor):
        blocks[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = function()  # held, or its blocks would be another's
    return sum(blocks.values()) * bool(out.requires_grad)


def kept_of_a_layer(comm):
    x = part(comm, drawn(1, 2, 64 * comm.size, 32), (1, 1, comm.size, 1)).clone()
    x.local.requires_grad_()
    weight = drawn(2, 2, 3, 3).requires_grad_()
    return kept(lambda: functional.conv2d(x, weight, padding=1).local)


def test_a_layer_keeps_its_tile_and_slabs_at_the_border_and_no_copy_of_the_tile():
    """Once the slabs were views of the whole region, which was kept beside the tile."""
    maps, tile, sides, ends = 2, 64 * 32, 2 * 66 * 3, 2 * 3 * 34
    most = 8 * maps * (tile + sides + ends + 2 * 3 * 3)
    assert all(0 < each <= most for each in run(kept_of_a_layer, 3, timeout=20))
