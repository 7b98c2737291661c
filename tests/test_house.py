"""The package keeps its shape: imports point down, it stays small, every name has one home."""

import ast
import functools
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "course").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
LONGEST_FUNCTION = 40
LONGEST_CELL = 15  # lines that a learner reads, comments and docstrings among them
MOST_CELLS = 55  # of a notebook

# The rooms, lowest first: each may import what stands behind it, and itself.  A room that is not
# named is a part of the one that it stands in.
MAY_IMPORT = {
    "comm": "",
    "worlds": "comm worlds/local worlds/netns worlds/mpirun worlds/simulator worlds/sockets "
    "worlds/slurm",
    "worlds/sockets": "comm",
    "worlds/local": "comm worlds worlds/sockets",
    "worlds/netns": "comm worlds worlds/sockets worlds/local",
    "worlds/mpirun": "comm worlds worlds/sockets worlds/local",
    "worlds/slurm": "comm worlds worlds/sockets worlds/local",
    "worlds/simulator": "comm worlds",
    "collectives": "comm",
    "learning": "",
    "parallel": "comm collectives learning",
    "cluster": "comm worlds worlds/simulator collectives learning parallel",
    "classroom": "comm worlds collectives learning parallel cluster",
}
# No two rooms need each other: what of worlds/ its rooms may import, and what imports them.
ENTRANCES = ("course.worlds", "course.worlds.launch")

LARGEST = {  # lines of code
    "comm": 590, "worlds": 5122, "collectives": 775, "learning": 2086, "parallel": 145,
    "parallel/array": 764, "parallel/data": 600, "parallel/elastic": 250, "parallel/experts": 225,
    "parallel/farm": 245, "parallel/gossip": 165, "parallel/hybrid": 255, "parallel/pipeline": 1050,
    "parallel/sequence": 190, "parallel/server": 480, "parallel/sharded": 730,
    "parallel/spatial": 520, "parallel/tensor": 445, "cluster": 415, "cluster/cots": 160,
    "cluster/scaling": 376, "cluster/failover": 845, "cluster/storage": 440,
    "cluster/placement": 660, "classroom": 2785, "classroom/drawings": 1950,
    "cluster/planning": 500, "cluster/frameworks": 290,
}  # fmt: skip

ENDS = re.compile(r"(# hint|(print\()?check)\(")
ASKS = re.compile(r"(?<![.\w])predict\(")

NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER)  # fmt: skip


def name_of(path):
    return str(path.relative_to(ROOT))


def floor(path):
    """The folder below course that a file is in; nothing for course/__init__.py."""
    parts = path.relative_to(ROOT / "course").parts
    return parts[0] if len(parts) > 1 else ""


def room(parts):
    """The innermost room of a path below course, given by its parts."""
    names = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((name for name in names if name in MAY_IMPORT), "")


def imported(path):
    """Dotted names that a file imports from course."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("course"))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base = [*base, *(node.module or "").split(".")]
            if base[0] == "course":
                yield from (".".join([*base, alias.name]) for alias in node.names)


def docstrings(tree):
    for node in ast.walk(tree):
        first = (
            node.body[0] if isinstance(getattr(node, "body", None), list) and node.body else None
        )
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        if is_text and isinstance(first.value.value, str):
            yield first


@functools.cache
def lines_of_code(text):
    """How many lines hold code: no blank lines, comments or docstrings."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in docstrings(ast.parse(text)):
        lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def functions(tree):
    """Name and lines of every function, its docstring not counted."""
    told = {id(node): node.end_lineno + 1 for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = told.get(id(node.body[0]), node.body[0].lineno)
            yield node.name, node.end_lineno - first + 1


def defined(tree):
    """Public functions and classes at the top of a file or cell."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {
        node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")
    }


def cells_of(notebook):
    """The source of each code cell, and whether it is folded."""
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            folded = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
            yield "".join(cell["source"]), folded


def code_cells(notebook):
    return [source for source, _ in cells_of(notebook)]


def to_be_read(source):
    """The lines of a cell, but for what every exercise ends with; none of one that imports."""
    if source.startswith(("import ", "from ")):
        return []
    return [line for line in source.splitlines() if line.strip() and not ENDS.match(line)]


def test_every_folder_of_the_package_is_a_floor():
    assert {floor(path) for path in PACKAGE} <= {"", *MAY_IMPORT}


def upwards(path):
    """What a file imports from rooms that stand above its own."""
    own = room(path.relative_to(ROOT / "course").parts[:-1])
    allowed = {own, *MAY_IMPORT.get(own, "").split()}
    for name in imported(path):
        theirs = room(name.split(".")[1:])
        into_the_entrance = own.startswith("worlds/") and name.rpartition(".")[0] in ENTRANCES
        if theirs not in allowed or into_the_entrance:
            yield name


@pytest.mark.parametrize("path", PACKAGE, ids=name_of)
def test_imports_point_down(path):
    assert not list(upwards(path))


def test_an_import_that_points_up_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for place, line in (
        ("collectives/basic.py", "from course.worlds import run"),
        ("comm/trace.py", "from course.worlds.launch import run"),
        ("worlds/sockets/stream.py", "from course.worlds.local.rank import run_rank"),
        ("worlds/simulator/rank.py", "import course.worlds.sockets.stream"),
        ("worlds/local/rank.py", "from course.worlds.launch import run"),
    ):
        path = tmp_path / "course" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line)
        assert list(upwards(path)), line


def test_every_module_has_a_test_under_its_name():
    tested = [path for path in PACKAGE if path.stem not in ("__init__", "__main__")]
    mirrors = [ROOT / "tests" / path.relative_to(ROOT / "course") for path in tested]
    assert not [str(path) for path in mirrors if not path.with_name(f"test_{path.name}").exists()]


@pytest.mark.parametrize("name", LARGEST)
def test_no_room_outgrows_its_size(name):
    assert lines_of_code_in(name) <= LARGEST[name]


def lines_of_code_in(name):
    """Of a room without exercises, and without a room in it that has a size of its own."""
    counted = (ROOT / "course" / name).rglob("*.py")
    apart = {
        "problems",
        *(other.split("/")[1] for other in LARGEST if other.startswith(f"{name}/")),
    }
    own = [path for path in counted if not apart.intersection(path.relative_to(ROOT).parts)]
    return sum(lines_of_code(path.read_text()) for path in own)


def test_the_package_is_as_small_as_the_readme_says():
    stated = re.search(r"([\d ]+) lines of code", (ROOT / "README.md").read_text())
    assert sum(map(lines_of_code_in, LARGEST)) < int(stated[1].replace(" ", ""))


@pytest.mark.parametrize("path", PACKAGE, ids=name_of)
def test_functions_are_short(path):
    found = functions(ast.parse(path.read_text()))
    assert not [(name, lines) for name, lines in found if lines > LONGEST_FUNCTION]


@functools.cache
def homes():
    """{name: the module of the package that defines it}."""
    return {
        name: name_of(path)
        for path in PACKAGE
        if "problems" not in path.parts  # there the learner's own function has the same name
        for name in defined(ast.parse(path.read_text()))
    }


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_no_notebook_defines_again_what_the_package_has(notebook):
    here = set().union(*(defined(ast.parse(cell)) for cell in code_cells(notebook)))
    assert not {name: homes()[name] for name in here if name in homes()}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_cells_that_are_read_are_short(notebook):
    cells = [to_be_read(source) for source, folded in cells_of(notebook) if not folded]
    assert not [(lines[0], len(lines)) for lines in cells if len(lines) > LONGEST_CELL]


def cells_in(notebook):
    return len(json.loads(notebook.read_text())["cells"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_has_few_cells(notebook):
    assert cells_in(notebook) <= MOST_CELLS


def test_a_notebook_with_many_cells_is_found(tmp_path):
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps({"cells": MOST_CELLS * [{}]}))
    test_a_notebook_has_few_cells(path)
    path.write_text(json.dumps({"cells": (MOST_CELLS + 1) * [{}]}))
    with pytest.raises(AssertionError, match=f"{MOST_CELLS + 1}"):
        test_a_notebook_has_few_cells(path)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_no_question_is_folded_away(notebook):
    assert not [source for source, folded in cells_of(notebook) if folded and ASKS.search(source)]


def test_a_long_cell_and_a_folded_question_are_found(tmp_path):
    def cell(source, **metadata):
        return {"cell_type": "code", "source": source, "metadata": metadata}

    def book(*cells):
        path = tmp_path / "book.ipynb"
        path.write_text(json.dumps({"cells": cells}))
        return path

    folded = {"source_hidden": True}
    long, asks = "x = 1\n\n" * (LONGEST_CELL + 1), 'guess = predict("How many?", ...)'
    with pytest.raises(AssertionError, match="x = 1"):
        test_cells_that_are_read_are_short(book(cell("x = 0"), cell(long)))
    test_cells_that_are_read_are_short(
        book(cell(long, jupyter=folded), cell("import os\n" + long), cell("check(x)\n" + long[7:]))
    )
    with pytest.raises(AssertionError, match="How many"):
        test_no_question_is_folded_away(book(cell(asks), cell(asks, jupyter=folded)))
    test_no_question_is_folded_away(book(cell("net.predict(x)", jupyter=folded)))


EXAMPLE = '''"""Of
no weight."""

# nor this
def f():
    """Nor."""
    return [
        1,
    ]
'''


def test_lines_are_counted_as_promised():
    assert lines_of_code(EXAMPLE) == 4
    assert list(functions(ast.parse(EXAMPLE))) == [("f", 3)]
