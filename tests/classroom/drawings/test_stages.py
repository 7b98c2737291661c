"""A network to scale: as many cells as numbers, windows as large as they are, words that count."""

import itertools

from course.classroom.drawings import stages
from course.learning.nine_layers import BILLION, Geometry, Plan

PLAN = Plan(channels=1, side=12, even=None, stages=(
    Geometry(field=6, stride=2, maps=2, penalty=0.1, pool=3, pool_stride=1),
    Geometry(field=2, stride=1, maps=3, penalty=0.1, pool=1, pool_stride=1),
))  # fmt: skip


def drawn():
    axes = stages.draw(PLAN, "a title")
    axes.figure.draw_without_rendering()
    return axes


def test_layers_have_their_sides_and_what_they_see():
    shown = stages.layers(PLAN)
    assert [layer.name for layer in shown] == ["frame", "filter 1", "pool 1", "filter 2", "pool 2"]
    assert [(layer.maps, layer.side) for layer in shown] == [
        (1, 12),
        (2, 4),
        (2, 2),
        (3, 1),
        (3, 1),
    ]
    assert [layer.window for layer in shown] == [6, 3, 2, 1, 0]
    assert [layer.pixels for layer in shown] == [1, 6, 10, 12, 12]


def test_the_top_of_the_large_network_sees_64_pixels():
    assert stages.layers(BILLION)[-1].pixels == 64


def test_windows_are_to_scale_and_filters_read_all_maps():
    axes = drawn()
    sides = [patch.get_width() for patch in axes.patches]
    # the frame's window, its reader, the pool's window in one map, its reader, both maps, ...
    assert sides == [6, 1, 3, 1, 2, 2, 1, 1, 1]
    assert all(patch.get_width() == patch.get_height() for patch in axes.patches)


def test_every_map_is_a_grid_with_a_cell_for_each_number():
    grid = [line for line in drawn().lines if line.get_linewidth() < 0.5]
    lines = sum(2 * layer.maps * (layer.side + 1) for layer in stages.layers(PLAN))
    assert len(grid) == lines


def test_words_say_what_is_drawn_and_do_not_overlap():
    texts = drawn().texts
    words = [text.get_text() for text in texts]
    assert {"frame\n12 × 12", "filter 1\n2 maps of\n4 × 4", "each sees\n10 × 10"} <= set(words)
    extents = [text.get_window_extent() for text in texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
