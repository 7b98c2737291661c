"""Every notebook runs from top to bottom, shows again what is stored in it, and hides nothing."""

import ast
import json
import os
import re
import subprocess
import sys
import tokenize
from io import StringIO
from pathlib import Path

import pytest

from tests.test_house import lines_of_code

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
NBVAL = ("-p", "tests.close_outputs", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=600",
         "--maxfail=5", "--color=no")  # fmt: skip
IGNORED = "nbval-ignore-output"
MOVE_SLIDERS = Path(__file__).with_name("move_sliders.py")
SHARE_COMPARED = 0.6
LONGEST_CELL = 12  # lines of code that are read at a time

# A command that fails behind a bare `!` or one of these leaves its cell green.
SHELL = re.compile(r"^\s*(\w+\s*=\s*)?(!|%{1,2}(sx|sh|bash|script|system)\b)", re.MULTILINE)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def is_compared(cell):
    return IGNORED not in cell["metadata"].get("tags", [])


def with_moved_sliders(path, folder):
    """A copy of a notebook in `folder` whose last cell moves every slider."""
    book, copy = json.loads(path.read_text()), folder / path.name
    last = {"cell_type": "code", "id": "sliders", "metadata": {"tags": [IGNORED]}, "outputs": [],
            "execution_count": None, "source": MOVE_SLIDERS.read_text()}  # fmt: skip
    copy.write_text(json.dumps(book | {"cells": [*book["cells"], last]}))
    return copy


@each_notebook
@pytest.mark.timeout(1800)
def test_every_stored_output_comes_again_and_sliders_move(path, tmp_path):
    own_ledger = os.environ | {"COURSE_PROGRESS": str(tmp_path / "progress.json")}
    copy = with_moved_sliders(path, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NBVAL, copy]
    done = subprocess.run(command, cwd=ROOT, env=own_ledger, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]


@each_notebook
def test_it_names_the_kernel_python3(path):
    assert json.loads(path.read_text())["metadata"]["kernelspec"]["name"] == "python3"


@each_notebook
def test_it_was_stored_after_one_run_from_top_to_bottom(path):
    counts = [cell["execution_count"] for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_no_stored_output_is_an_error(path):
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]


@each_notebook
def test_most_outputs_are_compared(path):
    with_output = [cell for cell in code_cells(path) if cell["outputs"]]
    compared = [cell for cell in with_output if is_compared(cell)]
    assert len(compared) >= SHARE_COMPARED * len(with_output)


@each_notebook
def test_what_a_slider_shows_is_not_compared(path):
    """Under nbval a slider's figure comes twice: nothing takes the first one away."""
    assert not [
        cell for cell in code_cells(path) if "sliders(" in source(cell) and is_compared(cell)
    ]


@each_notebook
def test_no_cell_calls_a_shell(path):
    assert not [source(cell) for cell in code_cells(path) if SHELL.search(source(cell))]


@each_notebook
def test_no_cell_bends_imports(path):
    trees = [ast.parse(source(cell)) for cell in code_cells(path)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    assert "sys.path" not in [
        ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)
    ]
    stars = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    assert not stars


@each_notebook
def test_no_compared_cell_is_silenced_by_a_semicolon(path):
    # nbval runs cells without history, and without it IPython does not see the semicolon: the
    # value is shown in the test and was not when the notebook was stored.
    silenced = [source(cell) for cell in code_cells(path) if ends_in_semicolon(source(cell))]
    compared = [source(cell) for cell in code_cells(path) if is_compared(cell)]
    assert not [cell for cell in silenced if cell in compared]


def ends_in_semicolon(code):
    tokens = [token.string for token in tokenize.generate_tokens(StringIO(code).readline)
              if token.string.strip() and token.type != tokenize.COMMENT]  # fmt: skip
    return tokens[-1:] == [";"]


def is_folded(cell):
    return cell["metadata"].get("jupyter", {}).get("source_hidden", False)


def code_lines(code):
    """How many lines hold code: no blank lines, comments, docstrings and imports."""
    nodes = ast.walk(ast.parse(code))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return lines_of_code(code) - sum(node.end_lineno - node.lineno + 1 for node in imports)


@each_notebook
def test_a_cell_that_is_read_has_few_lines_of_code(path):
    read = [source(cell) for cell in code_cells(path) if not is_folded(cell)]
    assert not [(code, code_lines(code)) for code in read if code_lines(code) > LONGEST_CELL]


@pytest.mark.parametrize("line", ["!ls", "  !ls", "files = !ls", "%%bash\nls", "%sx ls", "a\n!b"])
def test_a_call_of_a_shell_is_seen(line):
    assert SHELL.search(line)


@pytest.mark.parametrize("line", ["a != b", "x % script", "print('!')", "%timeit f()"])
def test_other_code_is_no_call_of_a_shell(line):
    assert not SHELL.search(line)


def test_a_silencing_semicolon_is_seen():
    assert ends_in_semicolon("draw(\n    1\n);  # drawn\n")
    assert not ends_in_semicolon("a = 1; b = 2\n")
    assert not ends_in_semicolon("")


CELL = '''from math import (
    pi,
)
import os

# the half of it
def half():
    """Of
    a turn."""
    import cmath

    return [
        pi,
    ]
'''


def test_lines_of_code_are_counted_without_imports():
    assert code_lines(CELL) == 4


def test_a_cell_that_is_read_and_long_is_found(tmp_path):
    def book(lines, **metadata):
        cell = {"cell_type": "code", "source": ["x = 1\n"] * lines, "metadata": metadata}
        path = tmp_path / "book.ipynb"
        path.write_text(json.dumps({"cells": [cell]}))
        return path

    test_a_cell_that_is_read_has_few_lines_of_code(book(LONGEST_CELL))
    folded = {"source_hidden": True}
    test_a_cell_that_is_read_has_few_lines_of_code(book(LONGEST_CELL + 1, jupyter=folded))
    with pytest.raises(AssertionError, match="x = 1"):
        test_a_cell_that_is_read_has_few_lines_of_code(book(LONGEST_CELL + 1))
