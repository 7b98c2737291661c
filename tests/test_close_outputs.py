"""Outputs of another processor pass, and wrong ones do not."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.close_outputs import settled

ROOT = Path(__file__).parents[1]
CLOSE = [
    ("at most 0.073 above", "at most 0.074 above"),
    ("loss 9.996, done", "loss  10.00, done"),  # another width of its column
    ("gap 1.3e-07", "gap 1.4e-07"),
    ("0.30000000000000004", "0.3"),
    ("−0.5 and 1.25e+03", "−0.6 and 1.24e+03"),
    ("tensor([1.0000, 2.5000])", "tensor([1.0001, 2.4999])"),
]
APART = [
    ("12 steps", "13 steps"),
    ("at most 0.073 above", "at most 0.075 above"),
    ("rank 1: 0.5", "rank 2: 0.5"),
    ("0.5", "−0.5"),
    ("loss 0.5", "loss 0.5 0.5"),
    ("agrees: True", "agrees: False"),
    ("0.25 s", "0.25 ms"),
    ("gap 1.3e-07", "gap 1.3e-06"),
    ("gap 0.0", "gap nan"),
    ("x86 v1.2.3", "x86 v1.2.4"),
]


@pytest.mark.parametrize("new, stored", CLOSE)
def test_what_rounding_makes_of_a_number_is_the_same(new, stored):
    assert settled(new, stored) == stored and settled(stored, new) == new


@pytest.mark.parametrize("new, stored", APART)
def test_another_result_is_another(new, stored):
    assert settled(new, stored) == new and settled(stored, new) == stored


def test_a_cell_may_allow_more():
    assert settled("137 steps to 0.250", "140 steps to 0.254", 0.03) == "140 steps to 0.254"
    assert settled("137 steps", "142 steps", 0.03) == "137 steps"


CELLS = [  # what a cell prints now where 1.2345 is stored, its tags, whether it passes
    ("1.2346", [], True),
    ("1.2346", ["exact"], False),
    ("1.2445", [], False),
    ("1.2445", ["close=0.01"], True),
    ("1.26", ["close=0.01"], False),
]


def cell(printed, tags):
    stored = nbformat.v4.new_output("stream", name="stdout", text="it is 1.2345\n")
    result = nbformat.v4.new_output("execute_result", {"text/plain": "1.2345"}, execution_count=1)
    return nbformat.v4.new_code_cell(
        f"print('it is {printed}')\n{printed}",
        outputs=[stored, result], metadata={"tags": tags}, execution_count=1,
    )  # fmt: skip


def test_nbval_compares_so(tmp_path):
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [cell(printed, tags) for printed, tags, _ in CELLS]
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(book, tmp_path / "book.ipynb")
    nbval = (
        "-p",
        "tests.close_outputs",
        "--nbval",
        "--nbval-current-env",
        "-p",
        "no:cacheprovider",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rA", *nbval, "-c", "/dev/null", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    passed = re.findall(r"^PASSED .*::Cell (\d+)", done.stdout, re.MULTILINE)
    assert passed == [str(n) for n, (*_, passes) in enumerate(CELLS) if passes], done.stdout
