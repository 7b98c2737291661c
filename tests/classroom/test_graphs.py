"""Graphs are drawn with what their ranks hold, and the slider shows the round that it names."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from course.classroom import figures, graphs
from course.parallel.gossip.topology import (
    Graph,
    complete_graph,
    metropolis,
    ring_graph,
    spectral_gap,
    star_graph,
    wheel_graph,
)

BIG = {4: 0.5, 12: 0.45, 64: 0.09}  # ranks -> no picture on a ring of so many may be larger


def history(graph, rounds):
    """What gossip on the graph makes of random pictures [rounds + 1, ranks, 3, 2]."""
    x = torch.rand(graph.ranks, 6, generator=torch.Generator().manual_seed(0)).double()
    held = [torch.linalg.matrix_power(metropolis(graph), n) @ x for n in range(rounds + 1)]
    return torch.stack(held).view(rounds + 1, graph.ranks, 3, 2)


def test_disagreement_by_hand():
    held = torch.tensor([[3.0, 0.0, -3.0, 0.0], [1.0, 0.0, -1.0, 0.0], [5.0, 5.0, 5.0, 5.0]])
    assert graphs.disagreement(held).tolist() == pytest.approx([1, 1 / 3, 0])
    assert graphs.disagreement(held[..., None, None] + 7).tolist() == pytest.approx([1, 1 / 3, 0])


def test_ranks_go_round_a_circle_from_the_top_and_a_hub_is_in_the_middle():
    assert np.allclose(graphs.places(ring_graph(4)), [[0, 1], [1, 0], [0, -1], [-1, 0]])
    assert np.allclose(graphs.places(star_graph(5))[1:], graphs.places(ring_graph(4)))
    assert np.allclose(graphs.places(wheel_graph(9))[0], 0)
    assert np.allclose(graphs.places(complete_graph(4)), graphs.places(ring_graph(4)))
    assert np.allclose(graphs.places(Graph(3, ((0, 1), (1, 2))))[1], 0)
    assert graphs.places(ring_graph(1)).shape == (1, 2)


@pytest.mark.parametrize("graph", [ring_graph(5), wheel_graph(6), ring_graph(1)])
def test_every_edge_is_a_line_and_every_rank_a_number(graph):
    axes, at = graphs.network(graph, "five"), graphs.places(graph)
    lines = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) == 2]
    assert np.allclose(
        np.array(lines).reshape(-1, 2, 2), at[np.array(graph.edges, int).reshape(-1, 2)]
    )
    assert [text.get_text() for text in axes.texts] == [str(rank) for rank in range(graph.ranks)]
    assert np.allclose([text.get_position() for text in axes.texts], at)
    assert axes.get_title(loc="left") == "five"


def test_values_are_written_on_dots_whose_colours_tell_their_signs():
    values = torch.tensor([1.0, 0.25, -1.0, 0.0])
    axes = graphs.network(ring_graph(4), "four", values=values)
    assert [text.get_text() for text in axes.texts] == ["+1.00", "+0.25", "−1.00", "0"]
    dots = [line for line in axes.lines if len(line.get_xydata()) == 1]
    shades = [np.array(mpl.colors.to_rgb(dot.get_markerfacecolor())) for dot in dots]
    assert shades[0][2] > shades[0][1] and shades[2][2] < shades[2][0]
    assert np.ptp(shades[3]) < 0.02 < np.ptp(shades[1])


@pytest.mark.parametrize("graph", [ring_graph(12), star_graph(6), wheel_graph(9), ring_graph(3)])
def test_the_slowest_pattern_is_what_gossip_shrinks_least(graph):
    matrix = metropolis(graph)
    pattern, share = graphs.slowest_pattern(matrix, 2)
    assert torch.allclose(matrix @ pattern, share * pattern, atol=1e-12)
    assert abs(share) == pytest.approx(1 - spectral_gap(matrix))
    assert pattern[2] > 0 and float(pattern.abs().max()) == pytest.approx(1)
    assert abs(float(pattern.sum())) < 1e-12


def test_blended_by_hand():
    matrix = metropolis(ring_graph(4))
    held = graphs.blended(matrix, torch.tensor([[3.0], [6.0], [9.0], [12.0]]).double(), (0, 1, 2))
    assert held.shape == (3, 4, 1) and held[1, :, 0].tolist() == pytest.approx([7, 6, 9, 8])
    assert held[2, :, 0].tolist() == pytest.approx([7, 22 / 3, 23 / 3, 8])


@pytest.mark.parametrize(("p", "rounds"), [(2, 1), (4, 2), (8, 3), (64, 6)])
def test_one_peer_gossip_is_exact_after_a_cycle_on_powers_of_two(p, rounds):
    assert graphs.one_peer_rounds(p, 1e-12) == rounds


@pytest.mark.parametrize("p", [3, 6, 12])
def test_one_peer_rounds_are_those_of_the_worst_start(p):
    rounds, x = graphs.one_peer_rounds(p, 0.01), torch.eye(p, dtype=torch.float64)
    for done in range(rounds + 1):
        apart = torch.linalg.matrix_norm(x - 1 / p, 2)
        assert (apart <= 0.01) == (done == rounds)
        x = (x + x[torch.arange(p) - 2 ** (done % (p - 1).bit_length())]) / 2


def test_slowest_patterns_by_hand():
    ring, _ = graphs.slowest_pattern(metropolis(ring_graph(4)), 1)
    assert ring.tolist() == pytest.approx([0, 1, 0, -1], abs=1e-12)
    star, share = graphs.slowest_pattern(metropolis(star_graph(4)), 3)
    assert star.tolist() == pytest.approx([0, -0.5, -0.5, 1], abs=1e-12)
    assert share == pytest.approx(0.75)


@pytest.mark.parametrize("ranks", BIG)
def test_pictures_hang_where_their_ranks_are_and_touch_no_other(ranks):
    pictures = torch.rand(ranks, 4, 2)
    axes = graphs.network(ring_graph(ranks), "pictures", pictures=pictures)
    for shown, wanted, at in zip(axes.images, pictures, graphs.places(ring_graph(ranks))):
        left, right, low, high = shown.get_extent()
        assert np.allclose([(left + right) / 2, (low + high) / 2], at)
        assert high - low == pytest.approx(2 * (right - left)) and high - low <= BIG[ranks]
        assert np.array_equal(shown.get_array(), wanted.numpy()) and shown.get_clim() == (0, 1)
    assert len(axes.images) == ranks
    assert axes.get_xlim()[1] >= max(image.get_extent()[1] for image in axes.images)


def test_the_slider_shows_the_round_that_it_names(monkeypatch):
    kinds = {"ring": ring_graph(5), "star": star_graph(5)}
    held = {label: history(graph, 4) for label, graph in kinds.items()}
    drawn = []
    monkeypatch.setattr(graphs, "sliders", lambda draw, **given: drawn.append((draw, given)))
    graphs.play(kinds, held, film=(0, 3))
    ((draw, given),) = drawn
    assert given["film"] == [{"done": 0}, {"done": 3}]
    assert (given["done"].min, given["done"].max, given["done"].value) == (0, 4, 0)
    draw(3)
    for axes, (label, rounds) in zip(plt.gcf().axes, held.items(), strict=True):
        left = float(graphs.disagreement(rounds)[3])
        title = " ".join(axes.get_title(loc="left").split())
        assert title == f"{label} after 3 rounds: {left:.1%} is left"
        assert np.array_equal(axes.images[2].get_array(), rounds[3][2].numpy())


def test_the_title_fits_in_one_line_on_each_of_three_panels():
    title = "random after 30 rounds: 100.0% is left"
    drawn = figures.panels(3, *graphs.PANEL)
    for axes in drawn:
        graphs.network(ring_graph(12), title, pictures=torch.rand(12, 4, 4), axes=axes)
    axes.figure.canvas.draw()
    for axes in drawn:
        shown, whole = axes._left_title.get_window_extent(), axes.figure.bbox
        assert axes.get_title(loc="left") == title
        assert shown.x1 <= whole.x1 and shown.y1 <= whole.y1
