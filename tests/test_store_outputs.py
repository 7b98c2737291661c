"""`.ci/store_outputs.py`: what a notebook holds after it was run for storing."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

SCRIPT = Path(__file__).parents[1] / ".ci" / "store_outputs.py"
RUNS = (
    "from pathlib import Path\nprint(Path.home(), 'is home', flush=True)\nprint(6 * 7)",
    "import os\nprint(os.environ['COURSE_PROGRESS'])",
    "import ipywidgets\nipywidgets.IntSlider(3)",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n"
    "    print(error.__traceback__.tb_frame.f_code.co_filename)",
)


def written(path, *sources):
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.metadata.widgets = {"state": {}}
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A notebook that was stored, one that could not be, its text before, and what was said."""
    folder = tmp_path_factory.mktemp("notebooks")
    good, bad = written(folder / "a.ipynb", *RUNS), written(folder / "b.ipynb", "1 / 0")
    before = bad.read_text()
    done = subprocess.run([sys.executable, SCRIPT, bad, good], capture_output=True, text=True)
    return nbformat.read(good, as_version=4), bad.read_text() == before, done


def test_outputs_are_stored_as_on_nobodys_machine(stored):
    home, ledger, slider, traceback = (cell.outputs for cell in stored[0].cells)
    assert [output.text for output in home] == ["/home/learner is home\n42\n"]
    assert ledger[0].text == "/home/learner/.local/share/course/progress.json\n"
    assert list(slider[0].data) == ["text/plain"]
    assert traceback[0].text.endswith("/ipykernel_1/1.py\n")


def test_what_changes_from_run_to_run_is_not_stored(stored):
    notebook = stored[0]
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4]
    assert not any(cell.metadata for cell in notebook.cells)
    assert sorted(notebook.metadata) == ["kernelspec", "language_info"]
    assert notebook.metadata.kernelspec.name == "python3"


def test_a_notebook_that_fails_is_as_it_was_and_fails_the_command(stored):
    _, is_as_it_was, done = stored
    assert is_as_it_was and done.returncode == 1
    assert "b.ipynb is as it was, it did not run through" in done.stderr
    assert "ZeroDivisionError" in done.stderr
