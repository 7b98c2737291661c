"""A number in a notebook's prose cannot rot: the notebook computes it, or says whose it is.

Each number in Markdown must stand, as it is or rounded, in the notebook's code or in what its cells
print; a share may be given in per cent.  Published figures are listed in the notebook's metadata:
`"quoted": {"11.2": "Coates et al. 2013", ...}`.  Formulas, code and links are not looked at.
"""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
UNREAD = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$"  # code and formulas
    r"|\]\([^)]*\)|https?://\S+|<[^>]*>"  # links and tags
    r"|(?i:\b(?:notebooks?|exercises?|sections?|figures?|equations?|arxiv:?|doi:?)\s[\d.:]+"
    r"(?:(?:, | and | to |–)\d\d)*)"  # names of things
    r"|^\s*(?:\*\*)?\d+\.\s|\b(?:1[89]|20)\d\d\b|^\*\*Time\*\*.*?$",  # counts; years; contract
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.^])\d(?:\d|[,\u202f\u00a0 ](?=\d{3}(?!\d)))*(?:\.\d+)?(?![\d^])")
IN_CODE = re.compile(r"(?<![A-Za-z_])\d[\d_,]*(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def text_of(cell):
    return "".join(cell["source"])


def printed(cell):
    """All that a code cell has said in text."""
    for output in cell["outputs"]:
        yield "".join(output.get("text", ()))
        yield "".join(output.get("data", {}).get("text/plain", ()))
        yield re.sub("<[^>]*>", " ", "".join(output.get("data", {}).get("text/html", ())))


def told(markdown) -> list[str]:
    """The numbers of a text, without marks between their digits."""
    return [re.sub(r"[^\d.]", "", each) for each in NUMBER.findall(UNREAD.sub(" ", markdown))]


def known(book) -> set[Decimal]:
    """The numbers of a notebook's code and of what that printed."""
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    texts = [text for cell in cells for text in (text_of(cell), *printed(cell))]
    found = {Decimal(re.sub("[_,]", "", each)) for text in texts for each in IN_CODE.findall(text)}
    return found | {100 * value for value in found if value < 10}


def covers(values, number: str) -> bool:
    """Whether one of the values, rounded, is the number."""
    number = Decimal(number)
    step = Decimal(1).scaleb(number.as_tuple().exponent)
    return any(abs(value - number) * 2 <= step if value != value.to_integral() else value == number
               for value in values)  # fmt: skip


def rotting(book) -> list[str]:
    """The numbers in a notebook's prose that nothing covers."""
    quoted = {re.sub(r"[^\d.]", "", each) for each in book["metadata"].get("quoted", {})}
    values, cells = known(book), book["cells"]
    prose = [told(text_of(cell)) for cell in cells if cell["cell_type"] == "markdown"]
    every = dict.fromkeys(number for numbers in prose for number in numbers)
    return [number for number in every if number not in quoted and not covers(values, number)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_number_in_prose_is_computed_or_quoted(path):
    assert rotting(json.loads(path.read_text())) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_quoted_number_is_in_the_prose_and_has_a_source(path):
    book = json.loads(path.read_text())
    prose = " ".join(text_of(cell) for cell in book["cells"] if cell["cell_type"] == "markdown")
    for number, source in book["metadata"].get("quoted", {}).items():
        assert re.sub(r"[^\d.]", "", number) in told(prose), f"{number} is quoted nowhere"
        assert len(source) > 5, f"{number} has no source"


def book(prose, code="", output="", **metadata):
    outputs = [{"output_type": "stream", "text": output}]
    return {"metadata": metadata, "cells": [
        {"cell_type": "markdown", "source": prose},
        {"cell_type": "code", "source": code, "outputs": outputs},
    ]}  # fmt: skip


@pytest.mark.parametrize(("prose", "code", "output"), [
    ("it took 1.7 times as long", "", "ratio 1.7342"),
    ("38 % are faces", "", "share 0.3817"),
    ("4,000 frames", "frames = 4000", ""),
    ("4 000 frames", "frames = 4_000", ""),
    ("see notebook 08, exercise 3 and `x[17]`; $2^{35}$ of 2013", "", ""),
    ("notebooks 09, 10 and 12", "", ""),
    ("**Time** 41 minutes to read, 37 to do. Core path.", "", ""),
])  # fmt: skip
def test_a_computed_number_is_covered(prose, code, output):
    assert rotting(book(prose, code, output)) == []


@pytest.mark.parametrize(("prose", "output"), [
    ("it took 1.7 times as long", "ratio 1.83"), ("38 % are faces", "share 0.37"),
    ("1,131 a rank", "1132"), ("after 20 steps", "200 steps"),
])  # fmt: skip
def test_a_number_that_no_value_covers_is_found(prose, output):
    assert len(rotting(book(prose, output=output))) == 1


def test_a_quoted_number_needs_no_value():
    assert rotting(book("11.2 billion", quoted={"11.2": "Coates et al. 2013"})) == []
