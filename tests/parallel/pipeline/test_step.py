"""Steps are written as torch writes them."""

import pytest

from course.parallel.pipeline.step import Step


def test_a_step_is_read_as_it_is_written():
    for text in ("0F0", "12I3", "1W10", "3B2"):
        assert str(Step.of(text)) == text
    assert Step.of("12I3") == (12, "I", 3)
    assert Step(1, "F", 4).other(kind="B") == (1, "B", 4)
    assert Step(1, "F", 4).other(0) == (0, "F", 4)


@pytest.mark.parametrize("text", ["", "F0", "0X1", "0F", "0F1 "])
def test_what_is_no_step_is_said(text):
    with pytest.raises(ValueError, match="a step is a stage, one of F, B, I, W and a micro-batch"):
        Step.of(text)
