import pytest
from matplotlib.colors import to_rgba

from course.classroom.drawings import layer_cut
from course.classroom.figures import COLOURS


def cells(axes, *, rank=None, arrived=None):
    """How many cells are held by a rank, or arrived from the other."""
    found = axes.patches
    if rank is not None:
        found = [cell for cell in found if cell.get_facecolor() == to_rgba(COLOURS[rank])]
    return sum(arrived is None or bool(cell.get_hatch()) == arrived for cell in found)


def test_cut_by_images_each_rank_has_all_weights_and_nothing_arrives_forward():
    images, _ = layer_cut.draw()
    assert cells(images, rank=0) == cells(images, rank=1) == 4 + 16 + 4
    assert cells(images, arrived=True) == 0


def test_cut_by_neurons_half_of_x_arrives_and_weights_are_held_once():
    _, neurons = layer_cut.draw()
    assert cells(neurons, arrived=True) == 2 * 4
    assert cells(neurons, rank=0, arrived=False) == cells(neurons, rank=1, arrived=False) == 16


@pytest.mark.parametrize(("number", "said"), [(0, "16 numbers"), (1, "4 + 4 numbers")])
def test_what_crosses_is_said_and_every_matrix_has_its_name(number, said):
    axes = layer_cut.draw()[number]
    texts = [text.get_text() for text in axes.texts]
    assert any(said in text for text in texts)
    assert [text for text in texts if text in ("x", "W", "y", "rank 0", "rank 1")] == [
        "rank 0", "x", "W", "y", "rank 1", "x", "W", "y",
    ]  # fmt: skip


def test_the_legend_hides_no_cell():
    drawn = layer_cut.draw()
    figure = drawn[0].figure
    figure.draw_without_rendering()
    legends = [*figure.legends, *(axes.get_legend() for axes in drawn if axes.get_legend())]
    boxes = [legend.get_window_extent() for legend in legends]
    everything = [patch.get_window_extent() for axes in drawn for patch in axes.patches]
    assert len(boxes) == 1 and not any(boxes[0].overlaps(each) for each in everything)
