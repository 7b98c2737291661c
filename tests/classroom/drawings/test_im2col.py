import numpy as np
from matplotlib.colors import to_rgb

from course.classroom.drawings import im2col

PICTURE, TAPS = np.arange(12).reshape(3, 4), np.array([[1, 2], [3, 4]])


def numbers(axes):
    return [text.get_text() for text in axes.texts if text.get_text().lstrip("-").isdigit()]


def tinted(axes, tint):
    return [cell for cell in axes.patches if cell.get_facecolor()[:3] == to_rgb(tint)]


def test_every_number_stands_in_its_table():
    axes = im2col.draw(PICTURE, TAPS, "")
    columns = [0, 1, 2, 4, 5, 6, 1, 2, 3, 5, 6, 7, 4, 5, 6, 8, 9, 10, 5, 6, 7, 9, 10, 11]
    results = [34, 44, 54, 74, 84, 94]
    assert numbers(axes) == [str(each) for each in [*range(12), 1, 2, 3, 4, *columns, *results]]


def test_a_marked_window_has_the_colour_of_its_column_and_of_its_result():
    axes = im2col.draw(PICTURE, TAPS, "", marked=(0, 5))
    for tint, corner in zip(im2col.TINTS, ((0, -2), (2, -3)), strict=True):
        *cells, window = tinted(axes, tint)
        assert len(cells) == 4 + 1 and len({cell.get_x() for cell in cells[:4]}) == 1
        assert window.get_xy() == (im2col.SPACE + corner[0], corner[1])
        assert (window.get_width(), window.get_height()) == (2, 2)


def test_the_tables_are_named_in_the_order_of_the_product():
    names = [t.get_text() for t in im2col.draw(PICTURE, TAPS, "").texts if len(t.get_text()) > 2]
    assert names == ["picture", "taps", "a column for each place", "results"]
