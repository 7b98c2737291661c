import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from course.classroom.drawings import block_windows
from course.classroom.figures import COLOURS

FIELD = block_windows.FIELD


def corners(axes):
    """Where the windows of a picture begin: (right, down)."""
    found = (each for each in axes.patches if getattr(each, "get_width", float)() == FIELD)
    return [(x, -y - FIELD) for x, y in (each.get_xy() for each in found)]


def test_own_windows_move_with_their_place_and_a_block_has_one():
    own, shared = block_windows.draw()
    assert corners(own) == [(j, i) for i, j in block_windows.SHOWN]
    assert len(corners(shared)) == len(block_windows.SHOWN) and len(set(corners(shared))) == 1


def test_the_last_window_ends_with_the_picture():
    own, _ = block_windows.draw()
    right, down = corners(own)[-1]
    assert right + FIELD == down + FIELD == block_windows.SIDE


@pytest.mark.parametrize(("number", "said"), [(0, "16 windows: 16 products"), (1, "[16, 81]")])
def test_the_products_are_said_and_three_results_are_coloured(number, said):
    axes = block_windows.draw()[number]
    assert any(said in text.get_text() for text in axes.texts)
    filled = [each.get_facecolor() for each in axes.patches if isinstance(each, Rectangle)]
    assert all(filled.count(to_rgba(colour)) == 1 for colour in COLOURS[:3])
