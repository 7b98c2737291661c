"""Losses of ways are told at the end, compared at all steps, and drawn for the first seed."""

import torch

from course.classroom.drawings import paths


def rank(shift):
    here, there = torch.ones(3), torch.ones(3) + shift
    return {
        "mean": [([2.0, 0.5], here), ([2.0, 0.7], here)],
        "sum": [([2.0, 0.5], here), ([2.0, 0.7 + 1e-12], here)],
        "fast": [([2.0, 20.0], there), ([2.0, 30.0], here)],
    }


EVERYONES = [rank(0.0), rank(0.5)]


def test_losses_at_the_end_are_told_and_what_is_lost_is_not_averaged():
    lines = paths.told(EVERYONES).splitlines()
    assert lines[0] == "mean                  loss after 2 steps, five seeds: 0.600 ± 0.141"
    assert lines[2].endswith("above 10 with every seed") and len(lines) == 3


def test_paths_are_the_same_up_to_rounding():
    assert paths.same_path(EVERYONES, "mean", "sum")
    assert not paths.same_path(EVERYONES, "mean", "fast")


def test_ranks_have_moved_alike_or_not():
    assert paths.moved_alike(EVERYONES, "mean") and not paths.moved_alike(EVERYONES, "fast")


def test_a_line_for_each_way_of_the_first_seed():
    axes = paths.draw(EVERYONES, "so")
    assert {"mean", "sum", "fast"} <= {text.get_text() for text in axes.texts}
    assert [line.get_ydata()[-1] for line in axes.lines[:3]] == [0.5, 0.5, 20.0]
    assert list(axes.lines[0].get_xdata()) == [1, 2] and axes.get_yscale() == "log"
