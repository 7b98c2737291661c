import pytest
import torch
from matplotlib.colors import to_hex

from course.classroom.drawings import tiles
from course.classroom.figures import COLOURS
from course.parallel.array import Box, evenly

LAYOUT = evenly((8, 12), (2, 2))
REGIONS = [Box.of((max(a - 1, 0), min(b + 1, 8)), (max(c - 2, 0), min(d + 2, 12)))
           for (a, b), (c, d) in (box.intervals for box in LAYOUT.boxes())]  # fmt: skip


def of_rank(axes, rank, *, filled):
    found = [patch for patch in axes.patches if (patch.get_alpha() is not None) == filled]
    colours = (patch.get_facecolor() if filled else patch.get_edgecolor() for patch in found)
    mine = COLOURS[1 + rank].lower()
    return [patch for patch, colour in zip(found, colours) if to_hex(colour) == mine]


def places(patch):
    x, y = patch.get_xy()
    return (y, y + patch.get_height()), (x, x + patch.get_width())


@pytest.mark.parametrize("rank", range(4))
def test_a_region_is_outlined_and_what_is_not_owned_is_coloured(rank):
    axes = tiles.draw(torch.zeros(8, 12), LAYOUT, REGIONS, "Tiles")
    (outline,) = of_rank(axes, rank, filled=False)
    assert places(outline) == tuple(REGIONS[rank].intervals)
    coloured = sum(p.get_width() * p.get_height() for p in of_rank(axes, rank, filled=True))
    assert coloured == REGIONS[rank].size - REGIONS[rank].meet(LAYOUT.box(rank)).size
    assert f"rank {rank}" in [text.get_text() for text in axes.texts]


def test_only_the_ranks_that_are_asked_for_are_shown():
    axes = tiles.draw(torch.zeros(8, 12), LAYOUT, REGIONS, "Tiles", shown=[2])
    assert of_rank(axes, 2, filled=False) and not of_rank(axes, 1, filled=False)
    assert axes.get_title(loc="left") == "Tiles" and axes.get_xlabel() == "column (pixels)"


def test_a_border_has_each_place_that_is_not_owned_once():
    region, own = Box.of((0, 6), (1, 9)), Box.of((2, 5), (3, 9))
    seen = torch.zeros(6, 9)
    for piece in tiles.border(region, own):
        seen[tuple(slice(*each) for each in piece.intervals)] += 1
    expected = torch.zeros(6, 9)
    expected[0:6, 1:9] = 1
    expected[2:5, 3:9] = 0
    assert torch.equal(seen, expected)


def test_narrow_tiles_have_numbers_alone():
    layout = evenly((8, 12), (1, 12))
    axes = tiles.draw(torch.zeros(8, 12), layout, layout.boxes(), "Strips")
    assert [text.get_text() for text in axes.texts] == [str(rank) for rank in range(12)]
