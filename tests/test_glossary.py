"""The glossary is true: a notebook introduces each term, in bold, before any notebook uses it."""

import json
import re
from pathlib import Path

import pytest

from tests.test_numbers import NOTEBOOKS, UNREAD, UNREVISED, text_of

GLOSSARY = Path(__file__).parents[1] / "notebooks" / "glossary.ipynb"
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \| \[(\d\d)\]\((\d\d_\w+\.ipynb)\) \|$", re.MULTILINE)
EVERYDAY = {"core", "message", "process", "node", "rank"}  # words that people use before they know


def prose(path) -> list[str]:
    """The Markdown of a notebook, cell by cell, without code, formulas and links, bold kept."""
    cells = json.loads(path.read_text())["cells"]
    return [UNREAD.sub(" ", text_of(cell)) for cell in cells if cell["cell_type"] == "markdown"]


def rows():
    (table,) = [text_of(cell) for cell in json.loads(GLOSSARY.read_text())["cells"][1:]]
    return ROW.findall(table)


def spelled(term):
    """A term in prose: any case, its plural too, spaces and hyphens alike."""
    words = "[ -]".join(map(re.escape, re.split("[ -]", term)))
    return re.compile(rf"(?<![\w-]){words}(?:s|es)?(?![\w-])", re.IGNORECASE)


def introduced(term, text):
    return re.search(rf"\*\*[^*]*{spelled(term).pattern}[^*]*\*\*", text, re.IGNORECASE)


def test_the_table_can_be_read():
    (table,) = [text_of(cell) for cell in json.loads(GLOSSARY.read_text())["cells"][1:]]
    lines = [line for line in table.splitlines() if line.startswith("| **")]
    assert len(rows()) == len(lines) > 10
    assert [term.lower() for term, *_ in rows()] == sorted(term.lower() for term, *_ in rows())


@pytest.mark.parametrize(("term", "meaning", "number", "file"), rows())
def test_a_term_is_introduced_where_the_glossary_says(term, meaning, number, file):
    path = GLOSSARY.with_name(file)
    assert file.startswith(number) and path.stem not in UNREVISED
    assert any(introduced(term, text) for text in prose(path)), f"no bold {term} in {file}"


@pytest.mark.parametrize(("term", "meaning", "number", "file"), rows())
def test_no_term_is_used_before_it_is_introduced(term, meaning, number, file):
    if term in EVERYDAY:
        return
    earlier = [path for path in NOTEBOOKS if path.name < file and path.stem not in UNREVISED]
    used = [path.name for path in earlier if any(map(spelled(term).search, prose(path)[1:]))]
    assert not used, f"{term} is used before notebook {number}"
    contract, *cells = prose(GLOSSARY.with_name(file))
    first = next(text for text in cells if spelled(term).search(text))
    assert introduced(term, first), f"{term} is used in {file} before it is introduced: {first:.80}"


def test_a_term_is_found_in_its_spellings():
    assert introduced("mini-batch", "the **mini-batches** are") and not introduced("rank", "rank 2")
    assert spelled("process").search("two processes") and not spelled("core").search("score")
