"""Two classes: told apart without colour, and the line where the score is 0."""

import numpy as np
import pytest
import torch

from course.classroom.drawings import clouds
from course.learning.training.classifier import Classifier

FEATURES = [[0.0, 0.0], [1.0, 3.0], [2.0, 1.0]]
MODEL = Classifier(*(torch.tensor(each) for each in ([2.0, 4.0], -2.0, [1.0, 1.0], [1.0, 2.0])))


def drawn():
    return clouds.draw(FEATURES, [0, 1, 0], MODEL, "a title", "this", "that")


def test_each_class_has_its_dots_its_mark_and_its_name():
    rings, crosses = drawn().collections
    assert rings.get_offsets().tolist() == [[0, 0], [2, 1]]
    assert crosses.get_offsets().tolist() == [[1, 3]]
    assert len(rings.get_facecolor()) == 0 and len(crosses.get_facecolor()) == 1
    texts = drawn().get_legend().get_texts()
    assert [text.get_text() for text in texts] == ["no face", "face", "score 0"]


def test_the_line_is_where_the_score_is_zero():
    (line,) = drawn().lines
    point = np.array(line.get_xy1())
    for along in 0.0, 1.0, -2.0:
        at = torch.from_numpy(point + along * np.array([1.0, line.get_slope()]))
        assert float(MODEL.scores(at[None])[0]) == pytest.approx(0, abs=1e-6)


def test_the_line_does_not_change_the_picture():
    axes = drawn()
    assert axes.get_xlim()[1] < 2.5 and axes.get_ylim()[1] < 3.5
