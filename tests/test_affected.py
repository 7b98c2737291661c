"""`.ci/affected.py`: which tests `make check` runs after a change."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "affected.py"
spec = spec_from_file_location("affected", SCRIPT)
script = module_from_spec(spec)
spec.loader.exec_module(script)

FILES = (
    "course/comm/trace.py", "course/comm/__init__.py", "tests/comm/test_trace.py",
    "tests/test_house.py", "tests/comm/conftest.py", "tests/comm/deep/test_deep.py", "Makefile",
    "tests/test_makefile.py", "notes.txt",
    "tests/classroom/test_recorded.py",
)  # fmt: skip


def git(root, *arguments):
    who = ("-c", "user.name=me", "-c", "user.email=me@here.invalid")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path):
    """A project with one commit."""
    for name in FILES:
        change(tmp_path, name, "first")
    git(tmp_path, "init", "--initial-branch=main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def change(root, name, text="changed"):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("course/comm/trace.py", ["tests/comm/test_trace.py"]),
        ("course/comm/new.py", []),  # it has no test yet
        ("tests/comm/test_trace.py", ["tests/comm/test_trace.py"]),
        ("tests/comm/conftest.py", ["tests/comm"]),
        ("tests/test_house.py", []),
        ("Makefile", ["tests/test_makefile.py"]),
        ("notes.txt", []),
        ("course/classroom/records/new.json", ["tests/classroom/test_recorded.py"]),
        ("a name\nof two lines.txt", []),
    ],
)
def test_a_change_affects_its_own_tests_and_those_of_the_shape(root, name, tests):
    change(root, name)
    assert script.affected(root) == ["tests/test_house.py", *tests]


def test_tests_are_named_once(root):
    for name in ("course/comm/trace.py", "tests/comm/test_trace.py", "tests/comm/conftest.py"):
        change(root, name)
    assert script.affected(root) == ["tests/test_house.py", "tests/comm"]


def test_a_test_that_was_removed_is_not_run(root):
    (root / "tests/comm/test_trace.py").unlink()
    assert script.affected(root) == ["tests/test_house.py"]


def test_a_commit_to_compare_with(root):
    change(root, "course/comm/trace.py")
    git(root, "commit", "-am", "second")
    assert script.affected(root) == ["tests/test_house.py"]
    assert script.affected(root, "main~1") == ["tests/test_house.py", "tests/comm/test_trace.py"]
    with pytest.raises(subprocess.CalledProcessError):
        script.affected(root, "no-such-commit")


def test_as_a_command(root):
    change(root, "Makefile")
    said = subprocess.run([sys.executable, SCRIPT], cwd=root, check=True, capture_output=True)
    assert said.stdout == b"tests/test_house.py tests/test_makefile.py\n"


@pytest.mark.parametrize("name", [*script.ALWAYS, *sum(script.ELSEWHERE.values(), ())])
def test_what_is_named_is_there(name):
    assert (SCRIPT.parents[1] / name).exists()


def test_outside_of_git_a_sentence_says_so(tmp_path):
    said = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 1 and not said.stdout
    assert "git cannot say what has changed" in said.stderr
