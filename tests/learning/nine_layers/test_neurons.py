import math

import pytest
import torch

from benchmarks.selectivity import A16
from course.learning.images.faces import lfw_faces
from course.learning.images.frames import frames
from course.learning.images.photographs import photograph
from course.learning.nine_layers.network import NineLayers, train_greedily
from course.learning.nine_layers.neurons import (
    best_thresholds,
    held_out_selectivity,
    linear_filters,
    optimal_stimulus,
    principal_components,
    rotated,
    scaled,
    score,
    selectivity,
    shifted,
)

GOLDEN = torch.tensor([0.9, 0.8, 0.35, 0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
GOLDEN_LABELS = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0])


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def thirds(count):
    """Labels of which a third are 1."""
    return (torch.arange(count) % 3 == 0).long()


def slow_selectivity(responses, labels):
    """The protocol, word by word: the accuracy of the best of all neurons and thresholds."""
    best = 0
    for column in responses.T:
        for threshold in torch.linspace(column.min(), column.max(), 20, dtype=column.dtype):
            fires = [value > threshold for value in column]
            right = sum(bool(f) == bool(y) for f, y in zip(fires, labels, strict=True))
            best = max(best, right / len(labels))
    return best


def test_the_golden_neuron():
    found = selectivity(GOLDEN[:, None], GOLDEN_LABELS)
    assert found.accuracy == 0.875 and found.neuron == 0 and 0.5 <= found.threshold < 0.8
    assert score(found, GOLDEN[:, None], GOLDEN_LABELS) == 0.875


def test_the_best_neuron_is_the_one_that_a_slow_search_finds():
    for seed in range(5):
        responses, labels = drawn(31, 7, seed=seed), thirds(31)
        found = selectivity(responses, labels)
        assert math.isclose(found.accuracy, slow_selectivity(responses, labels))
        assert math.isclose(score(found, responses, labels), found.accuracy)
        mine = responses[:, [found.neuron]]
        assert math.isclose(slow_selectivity(mine, labels), found.accuracy)


def test_neurons_do_not_depend_on_their_neighbours_or_on_memory_layout():
    responses, labels = drawn(40, 6), thirds(40)
    together, _ = best_thresholds(responses.T.contiguous().T, labels)
    alone = torch.cat([best_thresholds(responses[:, [k]], labels)[0] for k in range(6)])
    assert torch.equal(together, alone)


def test_firing_is_above_the_threshold_and_a_silent_neuron_tells_nothing():
    labels = thirds(30)
    assert selectivity(labels.double()[:, None], labels).accuracy == 1
    assert selectivity(-labels.double()[:, None], labels).accuracy < 0.7


def test_one_constant_neuron_among_others_guesses():
    responses, labels = torch.stack([torch.full((30,), 2.0), torch.randn(30)], dim=1), thirds(30)
    assert math.isclose(best_thresholds(responses, labels)[0][0], 20 / 30, rel_tol=1e-6)


def test_honest_halves_share_no_group():
    """A neuron that knows each group by heart is worth nothing on other groups."""
    groups = torch.arange(400) // 10
    labels = (groups < 14).long()
    known = torch.nn.functional.one_hot(groups).double() * labels[:, None]
    learned = known @ (drawn(40, 3000) > 0).double()  # each fires for its own half of the persons
    assert selectivity(learned, labels).accuracy > 0.9
    assert held_out_selectivity(learned, labels, groups, seed=0) < 0.85


def test_both_halves_choose_and_both_score():
    """Two persons and two photographs: there are two ways to halve them, whatever the seed."""
    responses, labels = drawn(40, 4), torch.arange(40) // 20
    groups = torch.arange(40) // 10
    expected = set()
    for place in (0, 1):
        half = (groups == place) | (groups == 2)
        one, other = (selectivity(responses[rows], labels[rows]) for rows in (half, ~half))
        there = score(one, responses[~half], labels[~half])
        back = score(other, responses[half], labels[half])
        assert there != back
        expected.add((there + back) / 2)
    found = {held_out_selectivity(responses, labels, groups, seed=seed) for seed in range(9)}
    assert found <= expected


def test_an_honest_neuron_passes_the_honest_test():
    groups, labels = torch.arange(120) // 4, thirds(120).sort(descending=True).values
    responses = torch.cat([drawn(120, 30), 9.0 * labels[:, None] + drawn(120, 1, seed=1)], dim=1)
    assert held_out_selectivity(responses, labels, groups, seed=3) > 0.97


def test_best_of_many_useless_neurons_looks_better_than_it_is():
    labels, groups = thirds(60), torch.arange(60)
    responses = drawn(60, 5000)
    papers = selectivity(responses, labels).accuracy
    honest = sum(held_out_selectivity(responses, labels, groups, seed=k) for k in range(5)) / 5
    assert papers > 0.75 and honest < 0.65


def test_linear_filters_have_length_one():
    images = torch.eye(16, dtype=torch.float64).reshape(16, 1, 4, 4)
    responses = linear_filters(images, 5, seed=0)
    torch.testing.assert_close(responses.norm(dim=0), torch.ones(5, dtype=torch.float64))


def test_principal_components_are_the_directions_in_which_what_was_shown_varies_most():
    turned = torch.linalg.qr(drawn(16, 16).double()).Q
    spread = torch.linspace(1, 4, 16, dtype=torch.float64)  # along each direction
    shown = (torch.eye(16, dtype=torch.float64) * spread) @ turned.T
    asked = drawn(7, 1, 4, 4, seed=1).double()
    found = principal_components(asked, shown.reshape(16, 1, 4, 4), 3)
    torch.testing.assert_close(found.abs(), (asked.flatten(1) @ turned[:, -3:]).abs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_stimulus_of_a_linear_neuron_is_its_filter(dtype):
    weights, noise = drawn(1, 1, 6, 6).to(dtype), drawn(1, 1, 6, 6, seed=1).to(dtype)
    found = optimal_stimulus(lambda x: (x * weights).sum((1, 2, 3)), noise, steps=60)
    torch.testing.assert_close(found.image, weights / weights.norm(), atol=1e-3, rtol=0)
    assert (found.responses.diff() >= 0).all() and len(found.responses) == 61
    assert not found.image.requires_grad and not noise.requires_grad


def test_the_stimulus_of_a_neuron_of_energy_is_an_eigenvector():
    matrix = drawn(9, 9)
    energy = matrix @ matrix.T

    def response(x):
        return (x.flatten(1) @ energy * x.flatten(1)).sum(dim=1)

    found = optimal_stimulus(response, drawn(1, 1, 3, 3, seed=1), steps=300)
    assert math.isclose(found.responses[-1], torch.linalg.eigvalsh(energy)[-1], rel_tol=1e-6)
    assert math.isclose(found.image.norm(), 1, rel_tol=1e-12)


def test_a_neuron_that_never_responds_leaves_the_noise_as_it_was():
    noise = drawn(1, 1, 4, 4)
    found = optimal_stimulus(lambda x: 0 * x.sum((1, 2, 3)), noise, steps=3)
    assert found.responses.tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(found.image, noise / noise.norm())


@pytest.mark.parametrize("pixels", [-3, 0, 2])
def test_a_shift_by_whole_pixels_moves_pixels(pixels):
    images = drawn(2, 3, 9, 11)
    moved = shifted(images, pixels)
    expected = images[..., torch.arange(11).sub(pixels).clamp(0, 10)]
    inner = slice(3, 8)  # bicubic samples at the border see repeated pixels
    torch.testing.assert_close(moved[..., inner], expected[..., inner], atol=1e-12, rtol=0)


@pytest.mark.parametrize("side", [8, 9])
def test_a_quarter_turn_is_that_of_torch_and_four_are_none(side):
    images = drawn(2, 1, side, side)
    torch.testing.assert_close(rotated(images, 90), torch.rot90(images, 1, (2, 3)))
    torch.testing.assert_close(rotated(rotated(images, 90), -90), images)


def test_scaling_enlarges_around_the_middle():
    across = torch.linspace(-1, 1, 9, dtype=torch.float64).expand(1, 1, 9, 9)
    torch.testing.assert_close(scaled(across, 2.0)[..., 2:-2], across[..., 2:-2] / 2)
    torch.testing.assert_close(scaled(across, 1.0), across)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: selectivity(drawn(6), thirds(6)), r"1 or more\], not \[6\]"),
        (lambda: selectivity(drawn(6, 0), thirds(6)), r"1 or more\], not \[6, 0\]"),
        (lambda: selectivity(drawn(6, 2) * math.nan, thirds(6)), "some are nan or infinite"),
        (lambda: selectivity(thirds(6)[:, None], thirds(6)), "floating point, not torch.int64"),
        (lambda: selectivity(drawn(6, 2), thirds(7)), r"6 frames need as many labels, not \[7\]"),
        (lambda: selectivity(drawn(6, 2), thirds(6) * 0), r"0 and 1, both, not \[0\]"),
        (lambda: selectivity(drawn(6, 2), thirds(6) + 1), r"0 and 1, both, not \[1, 2\]"),
        (lambda: selectivity(torch.ones(6, 2), thirds(6)), "must vary, and all 2 are constant"),
        (
            lambda: held_out_selectivity(drawn(6, 2), thirds(6), 0 * thirds(6), 0),
            "2 groups or more, not 1",
        ),
        (lambda: scaled(drawn(1, 1, 4, 4), 0), "above 0, not 0"),
        (lambda: rotated(drawn(1, 1, 4, 5), 3), r"square, not \[4, 5\]"),
        (lambda: shifted(drawn(4, 4), 3), r"\[count, channels, height, width\].*\[4, 4\]"),
        (lambda: optimal_stimulus(torch.sum, drawn(1, 1, 2, 2), -1), "0 steps or more, not -1"),
        (lambda: optimal_stimulus(torch.sum, torch.zeros(1, 1, 2, 2), 1), "start that is not 0"),
    ],
)
def test_what_cannot_be_asked_is_said(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


LEARNED = ("brick", "camera", "flower", "grass", "stereo_motorcycle")
ASKED = ("chelsea", "china", "coffee", "gravel", "rocket")


def test_a_neuron_learns_to_tell_faces_that_nobody_named():
    """By the papers' protocol: five photographs are too few to be halved."""
    shown = frames(lfw_faces("train"), [photograph(name) for name in LEARNED], 600, 0.25, seed=0)
    test = frames(lfw_faces("test"), [photograph(name) for name in ASKED], 600, 0.352, seed=1)
    net = NineLayers(A16, seed=0)
    untrained = best_of_top(net, test)
    train_greedily(net, shown.images, steps=(80, 60, 100), seed=0)
    assert best_of_top(net, test) > max(0.75, untrained + 0.1)


def best_of_top(net, test):
    with torch.no_grad():
        return selectivity(net(test.images).flatten(1), test.labels).accuracy
