import numpy as np
import pytest
import torch

from course.classroom.drawings import contour

HESSIAN = torch.tensor([[2.0, 1.9], [1.9, 2.0]], dtype=torch.float64)  # 3.9 along (1, 1), 0.1
BEST = torch.tensor([0.5, 0.5], dtype=torch.float64)
START = torch.tensor([0.0, 1.4], dtype=torch.float64)


def texts(axes):
    return {text.get_text() for text in axes.texts}


def test_both_directions_are_named_with_their_curvatures():
    axes = contour.directions(HESSIAN, BEST, START, "A valley")
    assert "sharp direction,\ncurvature 3.9" in texts(axes)
    assert "flat direction,\ncurvature 0.1" in texts(axes)
    tips = [text.xy for text in axes.texts if text.arrow_patch]
    ways = sorted((np.asarray(tip) - BEST.numpy()).tolist() for tip in tips)
    assert ways[0][0] == pytest.approx(ways[0][1]) and ways[1][0] == pytest.approx(-ways[1][1])


def test_the_error_of_the_start_is_split_at_a_right_angle():
    axes = contour.directions(HESSIAN, BEST, START, "A valley")
    flat, sharp = 1.4 / 2**0.5, 0.4 / 2**0.5
    assert f"flat part\nof the error: {flat:.2f}" in texts(axes)
    assert f"sharp part\nof the error: {sharp:.2f}" in texts(axes)
    first, second = (np.diff(line.get_xydata(), axis=0)[0] for line in axes.lines[-2:])
    assert first @ second == pytest.approx(0, abs=1e-12)
    assert np.hypot(*first) == pytest.approx(flat) and np.hypot(*second) == pytest.approx(sharp)


def test_the_map_is_to_scale_and_marks_start_and_minimum():
    axes = contour.walks(HESSIAN, BEST, START, {}, "A valley")
    assert axes.get_aspect() == 1 and axes.get_xlabel() and axes.get_ylabel()
    marks = {tuple(line.get_xydata()[0]) for line in axes.lines}
    assert marks == {(0.0, 1.4), (0.5, 0.5)} and {"start", "minimum"} <= texts(axes)


def test_walks_differ_without_colour_and_their_names_lie_below_the_map():
    paths = {"one": torch.stack([START, BEST]), "other": torch.stack([START, START / 2, BEST])}
    axes = contour.walks(HESSIAN, BEST, START, paths, "Two")
    one, other = axes.lines[-2:]
    assert one.get_linestyle() != other.get_linestyle() and one.get_marker() != other.get_marker()
    assert [text.get_text() for text in axes.get_legend().texts] == ["one", "other"]
    axes.figure.canvas.draw()
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0


def test_a_walk_ends_where_it_leaves_the_map_and_says_so():
    path = [[0, 1], [1, 1], [5, 5], [0.5, 0.5]]
    axes = contour.walks(HESSIAN, BEST, START, {"": path}, "One")
    assert axes.lines[-1].get_xydata().tolist() == path[:3]
    assert axes.get_legend().texts[0].get_text() == "leaves the map at step 2"


def test_a_walk_without_a_name_needs_no_legend():
    assert contour.walks(HESSIAN, BEST, START, {"": [[0, 1]]}, "One").get_legend() is None
