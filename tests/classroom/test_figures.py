import warnings

import numpy as np
import pytest
import torch

from course.classroom import figures
from course.comm.trace import Event, Message

BOWL = [[x * x + 9 * y * y for x in range(-4, 5)] for y in range(-2, 3)]
WALK = torch.tensor([[-3.0, 1.0], [1.0, -0.5], [0.0, 0.0]])
SAID = "The title says what the picture shows, in a sentence that is longer than one line of it"

DRAWN = {
    "picture": lambda: figures.picture(torch.rand(20, 30), SAID),
    "curves": lambda: figures.curves({"a": ([1, 2], [3, 4])}, SAID, "steps", "loss (1)"),
    "valley": lambda: figures.valley(
        BOWL, range(-4, 5), range(-2, 3), {"walk": WALK}, SAID, "one (1)", "other (1)"
    ),
    "histograms": lambda: figures.histograms({"a": WALK}, SAID, "value (1)"),
}


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("kind", DRAWN)
def test_every_figure_names_its_axes_and_its_title_fits(kind):
    axes = DRAWN[kind]()
    assert axes.get_xlabel() and axes.get_ylabel()
    title = axes.get_title(loc="left")
    assert title.split() == SAID.split() and "\n" in title
    axes.figure.canvas.draw()
    inside, whole = axes._left_title.get_window_extent(), axes.figure.bbox
    assert inside.x1 <= whole.x1 and inside.y1 <= whole.y1


def test_a_picture_shows_its_pixels_from_black_to_white():
    pixels = torch.tensor([[0.2, 0.4], [0.6, 0.8]])
    (shown,) = figures.picture(pixels, "four pixels").images
    assert np.array_equal(shown.get_array(), pixels.numpy())
    assert shown.get_clim() == (0, 1) and shown.get_cmap().name in ("gray", "grey")


def test_curves_and_points_are_where_their_numbers_say():
    axes = figures.curves(
        {"line": (range(3), torch.tensor([1.0, 10.0, 100.0]))}, "growth", "step", "loss",
        points={"dots": ([0, 2], [torch.tensor(2.0), 50.0])}, marks={"limit": 1.5}, log="y",
    )  # fmt: skip
    line, dots, mark = axes.lines
    assert line.get_xydata().tolist() == [[0, 1], [1, 10], [2, 100]]
    assert dots.get_xydata().tolist() == [[0, 2], [2, 50]] and dots.get_marker() == "o"
    assert mark.get_xdata() == [1.5, 1.5]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    assert [text.get_text() for text in axes.get_legend().texts] == ["line", "dots", "limit"]
    assert line.get_color() != dots.get_color()


def test_what_was_predicted_and_what_was_found_share_a_colour():
    axes = figures.agreement(
        {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])}, {"b": ([2], [7])}, "so", "n", "s", how="run"
    )
    line, dots = axes.lines[1:3]
    assert line.get_color() == dots.get_color() != axes.lines[0].get_color()
    assert dots.get_xydata().tolist() == [[2, 7]] and dots.get_linestyle() == "None"
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["a", "b", "predicted", "run"]


def test_a_run_that_blew_up_is_drawn_as_far_as_it_goes():
    losses = torch.tensor([1.0, 1e200, torch.inf, torch.nan], dtype=torch.float64)
    axes = figures.curves({"": (range(4), losses)}, "blown up", "step", "loss", log="y")
    axes.figure.canvas.draw()
    assert 1e200 <= axes.get_ylim()[1] < np.inf
    assert axes.get_legend() is None


def test_a_valley_shows_level_lines_and_the_walk_over_them():
    axes = DRAWN["valley"]()
    (lines,) = (each for each in axes.collections if hasattr(each, "levels"))
    assert min(lines.levels) > 0 and max(lines.levels) == np.max(BOWL) and len(lines.levels) >= 8
    (walk,) = axes.lines
    assert np.array_equal(walk.get_xydata(), WALK.numpy())


def test_a_walk_that_leaves_does_not_stretch_the_valley():
    axes = figures.valley(
        BOWL, range(-4, 5), range(-2, 3), {"far": [[0, 0], [99, 1e9]]}, "far", "one", "other"
    )
    assert axes.get_xlim() == (-4, 4) and axes.get_ylim() == (-2, 2)


def test_a_level_line_runs_where_the_loss_has_its_value():
    axes = DRAWN["valley"]()
    (lines,) = (each for each in axes.collections if hasattr(each, "levels"))
    for level, path in zip(lines.levels, lines.get_paths(), strict=True):
        for x, y in path.vertices[:: max(1, len(path.vertices) // 5)]:
            assert x * x + 9 * y * y == pytest.approx(level, abs=2.5)  # straight between the knots


def test_panels_share_one_figure_of_their_joint_width():
    left, right = figures.panels(2, width=5, height=3)
    assert left.figure is right.figure
    assert left.figure.get_size_inches().tolist() == [10, 3]
    assert figures.curves({}, "empty", "x", "y", axes=right) is right


def test_a_timeline_has_a_row_for_each_rank_and_an_arrow_for_each_message():
    events = [
        Event(0, "send", 1, 0, 8, 10.0, 10.5),
        Event(1, "recv", 0, 0, 8, 9.0, 11.0),
        Event(0, "barrier", -1, 0, 0, 11.0, 12.0),
    ]
    axes = figures.timeline(events, [Message(1, 0, 1, 0, 8, 10.0, 11.0)], "one waits")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    bars = [(bar.get_x(), bar.get_width(), bar.get_y() + 0.25) for bar in axes.patches]
    assert bars == [(0.0, 3.0, 0.0), (0.0, 2.0, 1.0), (1.0, 0.5, 0.0), (0.0, 2.0, 1.0)]
    named = [text.get_text() for text in axes.get_legend().texts]
    assert named == ["its own work", "in send", "in recv"]
    (arrow,) = axes.texts
    assert (arrow.xy, arrow.xyann) == ((2.0, 1), (1.0, 0))
    assert axes.get_xlabel() and axes.get_title(loc="left") == "one waits"


def test_tiles_lie_in_reading_order_each_scaled_by_its_largest_value():
    filters = torch.stack([torch.full((2, 3), v) for v in (0.5, -4.0, 0.0)])
    (shown,) = figures.tiles(filters, "three", columns=2).images
    mosaic = shown.get_array()
    assert mosaic.shape == (2 * 2 + 1, 2 * 3 + 1) and shown.get_clim() == (-1, 1)
    assert (mosaic[:2, :3] == 1).all() and (mosaic[:2, 4:] == -1).all()
    assert (mosaic[3:, :3] == 0).all() and (mosaic[3:, 4:] == 1).all()  # nothing there: white
    assert (mosaic[2] == 1).all() and (mosaic[:, 3] == 1).all()


def test_pictures_stand_in_rows_each_under_its_label():
    images = {f"number {k}": torch.full((4, 6), float(k)) for k in range(4)}
    drawn = figures.pictures(images, "four", columns=3, vmin=0, vmax=3)
    assert [axes.get_title() for axes in drawn] == [*images, "", ""]
    assert [int(axes.images[0].get_array()[0, 0]) for axes in drawn[:4]] == [0, 1, 2, 3]
    assert drawn[0].images[0].get_clim() == (0, 3)


def test_histograms_share_their_bins_and_count_shares():
    axes = figures.histograms({"a": [0.0, 0.1, 1.0], "b": [1.0]}, "two", "x", bins=2)
    shares = {p.get_label(): p.get_data().values.tolist() for p in axes.patches if p.get_fill()}
    assert shares == {"a": [2 / 3, 1 / 3], "b": [0, 1]}
    assert "bin of 0.5" in axes.get_ylabel()


def test_bars_end_at_their_numbers_with_their_spread():
    values = {"one": 2.0, "other": (3.0, 2.5, 4.0), "of a file": [1.0, 0.5, 1.5]}
    axes = figures.bars(values, "three", "x", marks={"guess": 1.0})
    assert [bar.get_width() for bar in axes.patches] == [2.0, 3.0, 1.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(values)
    spread = [list(line.get_xdata()) for line in axes.lines]
    assert spread == [[2.0, 2.0], [2.5, 4.0], [0.5, 1.5], [1.0, 1.0]]
    assert [text.get_text().strip() for text in axes.texts] == ["2", "3", "1"]
