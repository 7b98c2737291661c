"""The soft threshold: 0 in the middle, shifted outside; the best pair lies on the diamond."""

import numpy as np
import pytest

from course.classroom.drawings import soft_threshold


def test_the_line_is_flat_up_to_the_threshold_and_shifted_by_it_outside():
    axes = soft_threshold.draw(0.5, (2, 0.3, -1), "a title")
    _, line, *dots = axes.lines
    v, z = line.get_data()
    assert (z[np.abs(v) <= 0.5] == 0).all()
    assert np.allclose(z[v > 0.5], v[v > 0.5] - 0.5) and np.allclose(z[v < -0.5], v[v < -0.5] + 0.5)
    assert [float(dot.get_ydata()[0]) for dot in dots] == [1.5, 0.0, -0.5]


def test_every_example_has_both_its_numbers():
    texts = [text.get_text() for text in soft_threshold.draw(0.5, (2, 0.3), "a title").texts]
    assert "2 → 1.5" in texts and "0.3 → 0" in texts and "z = v" in texts


def test_the_best_code_and_the_least_residual_are_marked_and_the_diamond_goes_through_the_best():
    axes = soft_threshold.diamond([[1.0, 0.0], [0.5, 1.0]], [1.0, 0.1], [0.8, 0.0], "a title")
    at = {text.get_text(): text.xy for text in axes.texts}
    assert np.allclose(at["best code"], [0.8, 0.0]) and np.allclose(
        at["least residual"], [0.95, 0.1]
    )
    corners = np.array(axes.lines[0].get_data()).T
    assert np.abs(corners).sum(axis=1) == pytest.approx(0.8)


def test_a_level_line_goes_through_the_best_code():
    atoms, patch, best = np.array([[1.0, 0.0], [0.5, 1.0]]), np.array([1.0, 0.1]), [0.8, 0.0]
    axes = soft_threshold.diamond(atoms, patch, best, "a title")
    (contour,) = axes.collections
    assert np.isclose(contour.levels, np.square(patch - best @ atoms).sum() / 2).any()
