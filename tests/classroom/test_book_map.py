"""The map of the book says what is there, and can be read."""

import itertools
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import FancyBboxPatch

from course.classroom import book_map

FOLDER = Path(__file__).parents[2] / "notebooks"
BOOK = book_map.notebooks()


def first_cell(notebook) -> str:
    return "".join(json.loads((FOLDER / notebook.file).read_text("utf-8"))["cells"][0]["source"])


@pytest.fixture(scope="module")
def axes():
    drawn = book_map.draw()
    drawn.figure.draw_without_rendering()
    yield drawn
    plt.close(drawn.figure)


def boxes(axes):
    return [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]


def test_there_are_28_notebooks_in_four_parts():
    assert [notebook.number for notebook in BOOK] == list(range(28))
    sizes = {part: len(list(group)) for part, group in itertools.groupby(BOOK, lambda n: n.part)}
    assert sizes == {"Learning": 8, "Communicating": 4, "Training on many": 10, "Scale": 6}


def test_the_core_path_has_13_notebooks():
    core = [notebook.name for notebook in BOOK if notebook.core]
    assert core == [
        "start_here", "gradient_descent", "networks", "sparse_coding", "nine_layers",
        "network_bottleneck", "collectives", "all_reduce",
        "data_parallel", "large_batches", "model_parallel", "pipeline", "scaling",
    ]  # fmt: skip


def test_every_notebook_of_the_map_is_there_and_no_other():
    assert [n.file for n in BOOK] == sorted(p.name for p in FOLDER.glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("notebook", BOOK, ids=lambda n: n.name)
def test_a_notebook_asks_the_question_of_the_map_and_says_whether_it_is_core(notebook):
    contract = first_cell(notebook)
    assert contract.startswith(f"# {notebook.question}\n")
    assert ("Core path" in contract, "ptional" in contract) == (notebook.core, not notebook.core)


def test_every_notebook_has_its_own_box(axes):
    drawn = [box.get_window_extent() for box in boxes(axes)]
    assert len(drawn) == 28
    assert not any(a.overlaps(b) for a, b in itertools.combinations(drawn, 2))
    inside = axes.figure.bbox
    assert all(inside.contains(x, y) for box in drawn for x, y in box.corners())


def test_every_text_stands_in_its_box_or_beside_all(axes):
    drawn = [box.get_window_extent() for box in boxes(axes)]
    words = [text for text in axes.texts if not text.get_text().startswith("Part")]
    for text in words:
        corners = text.get_window_extent().corners()
        assert any(all(box.contains(x, y) for x, y in corners) for box in drawn), text.get_text()
    others = [text for text in axes.texts if text not in words] + [axes.get_legend()]
    for extent in (other.get_window_extent() for other in others):
        assert not any(extent.overlaps(box) for box in drawn)


def test_the_boxes_stand_in_the_order_of_the_book(axes):
    numbers = [text.get_text() for text in axes.texts if text.get_text().isdigit()]
    assert numbers == [f"{number:02}" for number in range(28)]


def test_the_colour_says_what_is_core(axes):
    core, optional = axes.get_legend().get_patches()
    for notebook, box in zip(BOOK, boxes(axes), strict=True):
        face = core if notebook.core else optional
        assert box.get_facecolor() == face.get_facecolor(), notebook.name
    assert core.get_facecolor() != optional.get_facecolor()


def test_the_title_counts(axes):
    assert axes.get_title(loc="left") == "13 of 28 notebooks make the core path"
