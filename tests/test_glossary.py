"""The glossary is true: a notebook introduces each term, in bold, before any notebook uses it, and
each symbol stands in the formulas of the notebooks that are named."""

import json
import re
from pathlib import Path

import pytest

from tests.test_numbers import NOTEBOOKS, UNREAD, text_of

GLOSSARY = Path(__file__).parents[1] / "notebooks" / "glossary.ipynb"
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \| \[(\d\d)\]\((\d\d_\w+\.ipynb)\) \|$", re.MULTILINE)
SYMBOL = re.compile(
    r"^\| \$(.+?)\$ \| (.+?) \| (.+?) \| \[(\d\d)\]\((\d\d_\w+\.ipynb)\) \| (.*?)\|$", re.MULTILINE
)
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$", re.DOTALL)
EVERYDAY = {"code", "core", "message", "process", "node", "rank", "restart"}  # words of all days
BEHIND = re.compile(r"^## Sources.*|<details>.*?</details>", re.DOTALL | re.MULTILINE)


def prose(path) -> list[str]:
    """The Markdown of a notebook, cell by cell, without code, formulas and links, bold kept."""
    cells = json.loads(path.read_text())["cells"]
    return [UNREAD.sub(" ", text_of(cell)) for cell in cells if cell["cell_type"] == "markdown"]


def table(name):
    """The text of the glossary's cell of that name."""
    cells = json.loads(GLOSSARY.read_text())["cells"]
    return "".join(text_of(cell) for cell in cells if cell["id"] == name)


def rows():
    return ROW.findall(table("terms"))


def symbols():
    return SYMBOL.findall(table("symbols"))


def formulas(path) -> str:
    """All formulas of a notebook, without the words in them."""
    cells = json.loads(path.read_text())["cells"]
    prose = "\n".join(text_of(cell) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(
        r"\\(?:text|tfrac|operatorname)\{[a-z ]*\}", " ", " ".join(FORMULA.findall(prose))
    )


def written(symbol):
    """A symbol in a formula: the letter by itself, the command not as the start of another."""
    before = "" if symbol.startswith("\\") else r"(?<![A-Za-z\\])"
    return re.compile(before + re.escape(symbol) + "(?![A-Za-z])")


def spelled(term):
    """A term in prose: any case, its plural too, spaces and hyphens alike."""
    words = "[ -]".join(map(re.escape, re.split("[ -]", term)))
    return re.compile(rf"(?<![\w-]){words}(?:s|es)?(?![\w-])", re.IGNORECASE)


def introduced(term, text):
    return re.search(rf"\*\*[^*]*{spelled(term).pattern}[^*]*\*\*", text, re.IGNORECASE)


def test_the_table_can_be_read():
    lines = [line for line in table("terms").splitlines() if line.startswith("| **")]
    assert len(rows()) == len(lines) > 10
    assert [term.lower() for term, *_ in rows()] == sorted(term.lower() for term, *_ in rows())


@pytest.mark.parametrize(("term", "meaning", "number", "file"), rows())
def test_a_term_is_introduced_where_the_glossary_says(term, meaning, number, file):
    path = GLOSSARY.with_name(file)
    assert file.startswith(number)
    assert any(introduced(term, text) for text in prose(path)), f"no bold {term} in {file}"


def used_unexplained(term, file, path) -> bool:
    """Whether a notebook's text has a term, in a paragraph that does not link to its introduction;
    sources and folded answers do not count."""
    cells = [cell for cell in json.loads(path.read_text())["cells"][1:]
             if cell["cell_type"] == "markdown"]  # fmt: skip
    paragraphs = [each for cell in cells for each in BEHIND.sub("", text_of(cell)).split("\n\n")]
    return any(spelled(term).search(UNREAD.sub(" ", each)) and file not in each
               for each in paragraphs)  # fmt: skip


@pytest.mark.parametrize(("term", "meaning", "number", "file"), rows())
def test_no_term_is_used_before_it_is_introduced(term, meaning, number, file):
    if term in EVERYDAY:
        return
    earlier = [path for path in NOTEBOOKS if path.name < file]
    used = [path.name for path in earlier if used_unexplained(term, file, path)]
    assert not used, f"{term} is used before notebook {number}"
    contract, *cells = prose(GLOSSARY.with_name(file))
    first = next(text for text in cells if spelled(term).search(text))
    assert introduced(term, first), f"{term} is used in {file} before it is introduced: {first:.80}"


def test_a_term_is_found_in_its_spellings():
    assert introduced("mini-batch", "the **mini-batches** are") and not introduced("rank", "rank 2")
    assert spelled("process").search("two processes") and not spelled("core").search("score")


def test_the_table_of_symbols_can_be_read():
    lines = [line for line in table("symbols").splitlines() if line.startswith("| $")]
    names = [symbol for symbol, *_ in symbols()]
    assert len(names) == len(lines) > 10
    assert len(set(names)) == len(names), "one letter, one row"


@pytest.mark.parametrize(("symbol", "meaning", "unit", "number", "file", "elsewhere"), symbols())
def test_a_symbol_stands_in_the_notebooks_that_are_named(
    symbol, meaning, unit, number, file, elsewhere
):
    path = GLOSSARY.with_name(file)
    assert file.startswith(number)
    others = re.findall(r"\b\d\d\b", elsewhere)
    named = [path, *(each for each in NOTEBOOKS if each.name[:2] in others)]
    assert len(named) == 1 + len(others)
    missing = [each.name for each in named if not written(symbol).search(formulas(each))]
    assert not missing, f"no formula with ${symbol}$ in {missing}"


def test_a_symbol_is_found_by_itself_only():
    assert written("n").search("2n(p-1)") and not written("n").search(r"\ne nn")
    assert written(r"\ell").search(r"2\ell p") and not written(r"\e").search(r"\eta")
