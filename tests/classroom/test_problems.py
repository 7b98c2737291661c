"""All exercises of the book: named once, complete, and met in their notebook as they are judged."""

import ast
import inspect
import itertools
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from course.classroom.exercises import solution
from course.classroom.problems import catalogue

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
EXERCISES = [pytest.param(book, each, id=each.name) for book, each in catalogue()]
REPAIRS = [param for param in EXERCISES if param.values[1].given]
GALLERIES = [
    gallery
    for book in dict.fromkeys(book for book, _ in catalogue())
    for gallery in import_module(f"tests.classroom.problems.test_p{book}").GALLERIES
]


def code(book):
    """The code cells of a notebook, parsed."""
    cells = json.loads((NOTEBOOKS / f"{book}.ipynb").read_text())["cells"]
    return [ast.parse("".join(c["source"])) for c in cells if c["cell_type"] == "code"]


def body(function: ast.FunctionDef) -> str:
    """What it does: a cell says in a comment what the module's docstring says."""
    documented = ast.get_docstring(function) is not None
    return ast.dump(ast.Module(function.body[documented:], []))


def test_names_are_unique_over_the_whole_book():
    names = [exercise.name for _, exercise in catalogue()]
    assert len(names) == len(set(names)) >= 2


def test_no_exercise_loads_networkx_before_it_draws_a_cluster():
    """It takes a third of a second, in a notebook's first check and in every rank of a check."""
    code = "import sys; from course.classroom.problems import catalogue; print(len([*catalogue()]))"
    alone = [sys.executable, "-c", f"{code}; print('networkx' in sys.modules)"]
    done = subprocess.run(alone, cwd=NOTEBOOKS.parent, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(EXERCISES)), "False"]


def test_every_exercise_has_a_gallery_in_the_books_order():
    names = [exercise.name for _, exercise in catalogue()]
    assert [gallery.name for gallery in GALLERIES] == names


@pytest.mark.parametrize(("book", "exercise"), EXERCISES)
def test_an_exercise_is_complete(book, exercise):
    assert book[:2].isdigit() and exercise.task.endswith((".", "?")), exercise.name
    assert 1 <= len(exercise.hints) <= 3 and all(exercise.hints)
    assert len(repr(solution(exercise.name))) > 20


@pytest.mark.parametrize(("book", "exercise"), EXERCISES)
def test_the_notebook_has_it_checked(book, exercise):
    calls = [n for cell in code(book) for n in ast.walk(cell) if isinstance(n, ast.Call)]
    named = [n.args[0] for n in calls if getattr(n.func, "id", "") == "check"]
    sheets = [n.keys for cell in code(book) for n in ast.walk(cell) if isinstance(n, ast.Dict)]
    if any(isinstance(each, ast.Name) for each in named):  # in a loop over a sheet of answers
        named += itertools.chain(*sheets)
    assert [getattr(each, "value", None) for each in named].count(exercise.name) == 1


@pytest.mark.parametrize(("book", "exercise"), REPAIRS)
def test_the_notebook_hands_out_the_very_bug_that_counts_as_untouched(book, exercise):
    defined = [
        node for cell in code(book) for node in cell.body if isinstance(node, ast.FunctionDef)
    ]
    (handed_out,) = (each for each in defined if each.name == exercise.name)
    (kept,) = ast.parse(inspect.getsource(exercise.given)).body
    assert body(handed_out) == body(kept)
