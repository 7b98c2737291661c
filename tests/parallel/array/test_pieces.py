"""The plan of a fetch: which pieces a region is made of, and that givers and takers agree."""

import random

import pytest
import torch

from course.parallel.array import Box, evenly
from course.parallel.array.boxes import FILLS
from course.parallel.array.pieces import cost, exchange, pieces, shared
from tests.parallel.array.test_fetch import SHAPES, drawn, shown, some_layout, some_region


@pytest.mark.parametrize("fill", FILLS)
def test_pieces_make_the_region_and_return_their_adjoint(fill):
    """No rank is needed for that: each block is cut out of the whole and put where it is shown."""
    draw = random.Random(len(fill))
    for number in range(40):
        shape = SHAPES[draw.randint(1, 3)]
        layout, region = some_layout(draw, shape, 4), some_region(draw, shape)
        whole = drawn(*shape, seed=number).requires_grad_()
        made, y = torch.zeros(region.shape).double(), drawn(*region.shape, seed=1)
        back = torch.zeros_like(whole)
        for piece in pieces(layout, 0, region, fill):
            own = layout.box(piece.owner)
            assert piece.source.meet(own) == piece.source  # the owner has all of it
            here, there = piece.source.within(Box.whole(shape)), piece.target.within(region)
            made[there] = piece.shown(whole.detach()[here])
            back[here] += piece.returned(y[there])
        expected = shown(whole.detach(), region, fill)
        assert torch.equal(made, expected)
        assert abs(((made * y).sum() - (whole * back).sum()).item()) < 1e-11


def test_what_one_gives_another_gets():
    layout = evenly((6, 5), (2, 2))
    regions = tuple(Box.of((a - 2, b + 1), (c - 1, d + 2))
                    for (a, b), (c, d) in (box.intervals for box in layout.boxes()))  # fmt: skip
    got, given = exchange(layout, regions, "circular")
    for asker, owners in enumerate(got):
        for owner, found in owners.items():
            assert given[owner][asker] == found
            assert {(piece.owner, piece.asker) for piece in found} == {(owner, asker)}
    pairs = {(owner, asker) for asker, owners in enumerate(got) for owner in owners}
    assert pairs == {(owner, asker) for owner, askers in enumerate(given) for asker in askers}


def test_the_plan_of_all_ranks_is_made_once():
    layout, regions = evenly((8,), (2,)), (Box.of((0, 5)), Box.of((3, 8)))
    assert exchange(layout, regions, "zero") is exchange(layout, regions, "zero")
    assert cost(layout, regions) == [(1, 1, 1), (1, 1, 1)]


def test_of_boxes_that_meet_a_box_it_is_said_where():
    boxes = Box.of((0, 4), (2, 9)), Box.of((4, 6), (0, 9)), Box.of((3, 9), (5, 6))
    whole, target = torch.arange(81).view(9, 9), Box.of((1, 4), (1, 7))
    found = shared(target, boxes)
    assert [number for number, *_ in found] == [0, 2]
    for number, there, here in found:
        box, block = (whole[each.within(Box.whole((9, 9)))] for each in (boxes[number], target))
        assert torch.equal(box[there], block[here]) and box[there].numel() > 0
    assert [tuple(whole[here].shape) for *_, here in found] == [(3, 5), (1, 1)]
