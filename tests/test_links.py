"""What README, CONTRIBUTING and the notebooks point at is there."""

import ast
import json
import re
from pathlib import Path

import pytest

from course.classroom.book_map import notebooks

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "slides" / "INSTRUCTOR.md"]
TEXTS += sorted((ROOT / "notebooks").glob("*.ipynb"))
FOLDERS = (ROOT, ROOT / "course", ROOT / "notebooks")
README = (ROOT / "README.md").read_text()

LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`([\w./-]+\.(?:py|ipynb|md|toml|txt|yml))`|`([\w.-]+/[\w./-]*)`")
MODULE = re.compile(r"\bcourse(?:\.[a-z_]\w*)+")
WEB = ("https://", "http://", "mailto:")
NOT_YET = re.compile(
    r"\.venv/|workbook/|(site|slides)/build|.*NN_?"
)  # made by make, or a name still to be chosen

each_text = pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)


def prose(path):
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(path):
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ +(.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path):
    for target in LINK.findall(prose(path)):
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        if target.startswith(WEB):
            continue
        if not page.exists() or (anchor and anchor not in anchors(page)):
            yield target


def missing_files(path):
    """Names of files and folders in code quotes, as seen from any of FOLDERS."""
    for names in FILE.findall(prose(path)):
        name = "".join(names)
        if not NOT_YET.match(name) and not any((folder / name).exists() for folder in FOLDERS):
            yield name


def missing_modules(path):
    for name in set(MODULE.findall(prose(path))):
        if not is_there(name.split(".")):
            yield name


def is_there(parts):
    """Whether a dotted name is a folder or file of the package, or a name defined in one."""
    place = ROOT.joinpath(*parts)
    if place.is_dir() or place.with_suffix(".py").exists():
        return True
    home = (
        place.parent / "__init__.py" if place.parent.is_dir() else place.parent.with_suffix(".py")
    )
    return home.exists() and parts[-1] in names_in(ast.parse(home.read_text()))


def names_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


@each_text
def test_links_lead_somewhere(path):
    assert not list(broken_links(path))


@each_text
def test_files_that_are_named_exist(path):
    assert not list(missing_files(path))


@each_text
def test_modules_that_are_named_exist(path):
    assert not list(missing_modules(path))


@pytest.mark.parametrize("path", TEXTS[3:], ids=lambda path: path.name)
def test_a_notebook_links_to_its_neighbours_alone(path):
    # A learner's JupyterLab opens the folder of the notebooks and nothing above it.
    files = [t.partition("#")[0] for t in LINK.findall(prose(path)) if not t.startswith(WEB)]
    assert not [file for file in files if "/" in file]


# A row of README's table: number, name or link, question, minutes.
ROW = re.compile(r"^\| (\d\d) \| (\S+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def rows():
    return {int(number): rest for number, *rest in ROW.findall(README)}


def test_the_table_lists_every_notebook_and_its_question():
    listed = {number: question for number, (_, question, _) in rows().items()}
    assert listed == {
        n.number: n.question + ("" if n.core else " *(optional)*") for n in notebooks()
    }


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda notebook: notebook.name)
def test_the_table_links_to_each_notebook_and_has_its_minutes(notebook):
    name, _, minutes = rows()[notebook.number]
    assert name == f"[{notebook.name}](notebooks/{notebook.file})"
    text = prose(ROOT / "notebooks" / notebook.file)
    contract = re.search(r"\*\*Time\*\* (\d+) minutes to read, (\d+) to do", text)
    assert minutes == f"{contract[1]} + {contract[2]}"


def test_the_readme_says_how_many_notebooks_there_are():
    assert f"The book has {len(notebooks())} notebooks." in README


UNREAD = "## Your turn", "## Sources"
WORDS, LINES, GUESSES = 110, 8, 2  # a minute, as README says


def minutes_to_read(path) -> float:
    """Of all but imports, folded cells, exercises and sources."""
    read, minutes = True, 0.0
    for cell in json.loads(path.read_text())["cells"]:
        text, tags = "".join(cell["source"]), cell["metadata"].get("tags", ())
        if cell["cell_type"] == "markdown":
            for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
                read = not section.startswith(UNREAD) if section.startswith("## ") else read
                minutes += read * len(re.findall(r"\S*\w\S*", LINK.sub("]", section))) / WORDS
        elif read and "harness" not in tags and not text.startswith(("import ", "from ")):
            minutes += sum(map(bool, text.split("\n"))) / LINES + text.count("predict(") / GUESSES
    return minutes


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda notebook: notebook.name)
def test_the_minutes_to_read_are_counted_at_the_pace_of_the_readme(notebook):
    assert f"at {WORDS} words and {LINES} lines of code a minute" in README
    _, _, minutes = rows()[notebook.number]
    counted = minutes_to_read(ROOT / "notebooks" / notebook.file)
    assert abs(int(minutes.split()[0]) - counted) < 5, f"{counted:.0f} minutes are counted"
