"""The package keeps its shape: imports point down, it stays small, every name has one home."""

import ast
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

# The rooms, lowest first: each may import what stands behind it, and itself.  A room that is not
# named is a part of the one that it stands in.
MAY_IMPORT = {
    "comm": "",
    "worlds": "comm worlds/local worlds/netns worlds/mpirun worlds/simulator",
    "worlds/sockets": "comm",
    "worlds/local": "comm worlds worlds/sockets",
    "worlds/netns": "comm worlds worlds/sockets worlds/local",
    "worlds/mpirun": "comm worlds worlds/sockets worlds/local",
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
    "comm": 580, "worlds": 4080, "collectives": 760, "learning": 1985, "parallel": 130,
    "parallel/array": 745, "parallel/data": 580, "parallel/elastic": 250, "parallel/experts": 210,
    "parallel/farm": 205, "parallel/gossip": 165, "parallel/hybrid": 235, "parallel/pipeline": 950,
    "parallel/sequence": 190, "parallel/server": 480, "parallel/sharded": 700,
    "parallel/spatial": 500, "parallel/tensor": 445, "cluster": 395, "cluster/cots": 160,
    "cluster/scaling": 330, "cluster/failover": 790, "cluster/storage": 420,
    "classroom": 2020, "classroom/drawings": 1700,
}  # fmt: skip

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


def code_cells(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


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


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_no_notebook_defines_again_what_the_package_has(notebook):
    homes = {
        name: name_of(path)
        for path in PACKAGE
        if "problems" not in path.parts  # there the learner's own function has the same name
        for name in defined(ast.parse(path.read_text()))
    }
    here = set().union(*(defined(ast.parse(cell)) for cell in code_cells(notebook)))
    assert not {name: homes[name] for name in here if name in homes}


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
