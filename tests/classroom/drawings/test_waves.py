import numpy as np
import pytest

from course.classroom.drawings import waves


@pytest.mark.parametrize("row", [[2, 5, 4, 1], [1.0, -2, 7, 0, 3], [4]])
def test_the_waves_add_up_to_the_row(row):
    at = np.arange(len(row))
    parts = [wave(at) for wave in waves.waves(row)]
    np.testing.assert_allclose(sum(parts), row, atol=1e-8)
    assert len(parts) == len(row) // 2 + 1


def test_the_drawing_has_the_row_above_its_waves_with_their_numbers():
    axes = waves.draw([2, 5, 4, 1], "")
    assert [each.get_ylabel() for each in axes] == [
        "the row", "frequency 0", "frequency 1", "frequency 2",
    ]  # fmt: skip
    written = [[text.get_text() for text in each.texts] for each in axes]
    assert written == [["2", "5", "4", "1"], ["3"] * 4, ["−1", "2", "1", "−2"], ["0"] * 4]
