"""The region of several layers, by hand, and in the title."""

import torch

from course.classroom.drawings import depth


def test_a_region_grows_by_half_a_window_a_layer():
    fetched, computed = depth.shares((40, 40), 2, 5)  # tiles of 10 x 10
    assert fetched == 18 * 18 / 100
    assert computed == (10 * 10 + 14 * 14) / 200


def test_a_region_ends_at_the_edge_of_the_image():
    fetched, _ = depth.shares((40, 40), 30, 3)
    assert fetched == 16


def test_one_layer_computes_its_share():
    assert depth.shares((40, 40), 1, 3) == (12 * 12 / 100, 1)


def test_the_title_has_both_numbers():
    axes = depth.draw(torch.zeros(40, 40), 2, 5)
    title = axes.get_title() or axes.get_title(loc="left")
    assert "3.2 tiles" in title and "1.5 times" in title and "Layers: 2" in title
