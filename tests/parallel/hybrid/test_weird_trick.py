"""One weird trick is the serial training: values, every gradient, and bytes by formula."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.comm import Trace
from course.parallel.hybrid.gradients import SummedGradients, gradient_plan
from course.parallel.hybrid.weird_trick import (
    CutLinear,
    Shown,
    rounds,
    train_in_rounds,
    weird_trick_cost,
)
from course.worlds import RankError, run, simulated
from tests.parallel.test_worlds import WORLDS
from tests.worlds.netns.test_world import WHY_NOT
from tests.worlds.simulator.clusters import switched

ROWS, CLASSES, HIDDEN = 6, 5, 7
WIDTH = 2 * 3 * 3


def test_rounds_by_hand():
    assert rounds("a", [4, 2]) == [[(0, 4), (0, 2)]]
    assert rounds("b", [4, 2]) == [[(0, 4), (0, 0)], [(0, 0), (0, 2)]]
    assert rounds("c", [4, 3]) == [[(0, 2), (0, 2)], [(2, 4), (2, 3)]]
    assert rounds("b", [0, 2, 0]) == [[(0, 0), (0, 2), (0, 0)]]
    assert rounds("c", [0, 0]) == []
    with pytest.raises(ValueError, match="the schemes are a, b, c, not 'd'"):
        rounds("d", [1])


def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten()).double()


def fully_connected():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Tanh(),
        nn.Linear(HIDDEN, CLASSES),
    ).double()  # fmt: skip


def cut(comm, net):
    return nn.Sequential(*[
        CutLinear(comm, layer, last=layer is net[-1]) if isinstance(layer, nn.Linear) else layer
        for layer in net
    ])  # fmt: skip


def data(step, rows):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(sum(rows), 1, 5, 5, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (sum(rows),), generator=generator)


def descending(net, rate=0.5):
    """An update with the gradients as they are; they are cleared behind it."""

    def update():
        with torch.no_grad():
            for p in net.parameters():
                p -= rate * p.grad
                p.grad = None

    return update


def state(conv, top):
    return [p.detach().clone() for p in (*conv.parameters(), *top.parameters())]


def on_ranks(comm, scheme, rows, often, steps=3):
    """Losses and weights after each step; `often`: with an update after every round."""
    conv, top = convolution(), cut(comm, fully_connected())
    gradients = SummedGradients(conv, gradient_plan(conv, comm))
    own, told = slice(sum(rows[: comm.rank]), sum(rows[: comm.rank + 1])), []
    for step in range(steps):
        x, y = (part[own] for part in data(step, rows))
        seen = conv(x)
        update = descending(top) if often else None
        loss, slope = train_in_rounds(
            comm, top, cross_entropy, seen, y, scheme=scheme, update=update
        )
        seen.backward(slope)
        descending(conv)()
        if not often:
            descending(top)()
        told.append((loss, state(conv, top)))
    del gradients
    return told


def serially(scheme, rows, often, steps=3):
    conv, top, told = convolution(), fully_connected(), []
    first = [sum(rows[:rank]) for rank in range(len(rows))]
    for step in range(steps):
        x, y = data(step, rows)
        seen, whole = conv(x), 0.0
        leaf = seen.detach().requires_grad_()
        for shares in rounds(scheme, rows):
            chosen = torch.cat([torch.arange(a, b) + at for at, (a, b) in zip(first, shares)])
            part = len(chosen) / len(x)
            mean = cross_entropy(top(leaf[chosen]), y[chosen])
            before = 0 if leaf.grad is None else leaf.grad.clone()
            if often:
                mean.backward()
                leaf.grad = before + (leaf.grad - before) * part
                descending(top)()
            else:
                (mean * part).backward()
            whole += mean.detach() * part
        seen.backward(leaf.grad)
        descending(conv)()
        if not often:
            descending(top)()
        told.append((whole, state(conv, top)))
    return told


@pytest.mark.parametrize("scheme", "abc")
@pytest.mark.parametrize("rows", [(6,), (4, 4), (5, 2), (3, 0, 4), (1, 5, 2, 3)])
def test_every_scheme_is_serial_training(scheme, rows):
    for often in (False, True):
        expected = serially(scheme, rows, often)
        for rank, told in enumerate(run(on_ranks, len(rows), scheme, rows, often)):
            for (loss, mine), (wanted, whole) in zip(told, expected, strict=True):
                torch.testing.assert_close(loss, wanted, rtol=1e-12, atol=1e-12)
                for a, b in zip(mine, whole, strict=True):
                    if a.shape != b.shape:
                        b = b.tensor_split(len(rows))[rank]
                    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_without_updates_between_all_schemes_are_the_gradient_of_the_whole_batch():
    one, *others = [serially(scheme, (3, 4), False, 1)[0][1] for scheme in "abc"]
    for other in others:
        for a, b in zip(one, other):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def partly_frozen(comm):
    """Of a net whose first layer is frozen: what of it is trained, and what has a gradient; of its
    copy; what is said of a layer that is none."""
    net = fully_connected()
    net[0].requires_grad_(False)
    top = cut(comm, net)
    x, y = torch.ones(2, WIDTH).double(), torch.zeros(2).long()
    train_in_rounds(comm, top, cross_entropy, x, y)
    with pytest.raises(ValueError) as caught:
        CutLinear(comm, nn.Conv2d(1, 1, 1))
    again = [p.requires_grad for p in copy.deepcopy(top).parameters()]
    return (
        [(p.requires_grad, p.grad is not None) for p in top.parameters()],
        again,
        str(caught.value),
    )


def test_what_is_frozen_stays_so_when_it_is_cut():
    for rank, (told, again, said) in enumerate(run(partly_frozen, 2, timeout=5)):
        assert told == [(False, False)] * 2 + [(True, True)] * 3
        assert again == [each for each, _ in told]
        assert said == f"rank {rank}: what is cut here is a Linear, not Conv2d"


def both_ways(comm):
    """<G x, y> of one rank and <x, G* y> of all, where all have the same y."""
    widths = [3, 0, 2, 4][: comm.size]
    x = torch.randn(5, widths[comm.rank], dtype=torch.float64).t().contiguous().t()
    torch.manual_seed(0)
    y = torch.randn(5, sum(widths), dtype=torch.float64)
    cuts = tuple(itertools.accumulate(widths, initial=0))
    whole = Shown.apply(x.requires_grad_(), comm, cuts, 1)
    (whole * y).sum().backward()
    return float((whole * y).sum().detach()), float((x * x.grad).sum().detach())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_what_all_use_alike_gives_each_its_own_slope(ranks):
    there, back = zip(*run(both_ways, ranks, timeout=5))
    assert there[0] == pytest.approx(sum(back), rel=1e-13)


@pytest.mark.parametrize("world", ["hosts", "mpi", "imagined"])
def test_it_ends_with_the_same_bits_in_every_world(world):
    if world == "hosts" and WHY_NOT:
        pytest.skip(WHY_NOT)
    here = run(on_ranks, 3, "c", (3, 0, 4), True, 1)
    there = run(on_ranks, 3, "c", (3, 0, 4), True, 1, on=WORLDS[world]())
    for mine, theirs in zip(here, there, strict=True):
        for a, b in zip(mine[0][1], theirs[0][1], strict=True):
            assert torch.equal(a, b)


def metered(comm, scheme, rows, meta=False):
    device = comm.device if meta else "cpu"
    top = cut(comm, fully_connected().to(device))
    x = torch.zeros(rows[comm.rank], WIDTH, dtype=torch.float64, device=device)
    y = torch.zeros(len(x), dtype=torch.long, device=device)
    loss, slope = train_in_rounds(comm, top, cross_entropy, x, y, scheme=scheme)
    return comm.meter.sent_bytes, comm.meter.sent_messages, tuple(slope.shape)


@pytest.mark.parametrize("scheme", "abc")
@pytest.mark.parametrize("rows", [(6,), (4, 4), (5, 2), (3, 0, 4), (1, 5, 2, 3)])
def test_bytes_and_messages_are_those_of_the_formula(scheme, rows):
    expected = weird_trick_cost(scheme, rows, 8 * WIDTH, 8, [HIDDEN, HIDDEN, CLASSES], 8)
    worlds = [(None, False)]
    if scheme == "b" or len(rows) == 4:
        fabric = one_switch(len(rows), FREE, FDR)
        worlds.append((simulated(fabric, device="meta"), True))
    for on, meta in worlds:
        for rank, (nbytes, messages, shape) in enumerate(
            run(metered, len(rows), scheme, rows, meta, on=on)
        ):
            assert shape == (rows[rank], WIDTH)
            assert nbytes == expected.sent_bytes[rank]
            assert messages == expected.sent_messages[rank]


def test_the_decks_numbers():
    """AlexNet's 9216 activities of 128 images on 8 ranks, in float32: what a rank sends of them in
    a round of c is 128 * 7/8 * 9216 values, and in a eight times as much at once."""
    one = 128 * 9216 * 4 * 7 // 8
    for scheme, times in ("a", 8), ("c", 8):
        there = weird_trick_cost(scheme, [128] * 8, 9216 * 4, 0, [], 4)
        assert there.sent_bytes == [2 * times * one + 7 * 8] * 8
    b = weird_trick_cost("b", [128] * 8, 9216 * 4, 0, [], 4)
    assert sum(b.sent_bytes) == 8 * (2 * 8 * one + 7 * 8)


def test_what_travels_hides_behind_what_computes():
    """On an imagined cluster the second round's rows leave before the first round computes."""
    trace = Trace()
    run(metered, 2, "c", (8, 8), trace=trace, on=switched(2))
    sends = [event for event in trace.events if event.operation == "send" and event.rank == 0]
    background = sorted(event.start for event in sends if event.background)
    computing = sorted(event.end for event in sends if not event.background)[1:]  # the counts
    first_round = computing[: len(computing) // 2]
    assert len(background) == 2 * 3 and len(computing) == 2 * 5
    assert background[2] < first_round[0] and background[4] > first_round[-1]


def dies(comm, scheme, when):
    calls = iter(range(9))

    def loss(out, y):
        if comm.rank == 1 and next(calls) == when:
            raise ArithmeticError("rank 1 has had enough")
        return cross_entropy(out, y)

    top = cut(comm, fully_connected())
    x, y = torch.ones(4, WIDTH).double(), torch.zeros(4).long()
    train_in_rounds(comm, top, loss, x, y, scheme=scheme)


def with_labels(comm, count):
    x, y = torch.ones(4, WIDTH).double(), torch.zeros(count).long()
    train_in_rounds(comm, cut(comm, fully_connected()), cross_entropy, x, y)


def test_a_label_more_than_there_are_rows_is_refused():
    """It was left out, in silence."""
    with pytest.raises(RankError, match="rank 0: 4 rows have a label each: not 5"):
        run(with_labels, 2, 5, on=switched(2))


@pytest.mark.parametrize("scheme, when", [("a", 0), ("b", 1), ("c", 0), ("c", 2)])
def test_a_rank_that_fails_in_any_round_ends_the_others(scheme, when):
    with pytest.raises(
        RankError, match="rank 1 failed: ArithmeticError: rank 1 has had enough"
    ) as e:
        run(dies, 3, scheme, when, timeout=5)
    assert not e.value.running
