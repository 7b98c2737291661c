"""Which tests a change affects: `make check` runs them, and those of the package's shape.

Changed is what differs from a commit (default: the last one), and what git does not know yet.  The
tests of course/x/y.py are tests/x/test_y.py; what the tests of a folder share affects them all.
"""

import subprocess
import sys
from pathlib import Path

ALWAYS = ("tests/test_house.py",)
ELSEWHERE = {  # what no test is named after
    "Makefile": ("tests/test_makefile.py",),
    ".ci/run": ("tests/test_ci.py",),
    "README.md": ("tests/test_links.py",),
    "CONTRIBUTING.md": ("tests/test_links.py",),
    "binder": ("tests/test_binder.py",),
    "Containerfile": ("tests/test_container.py",),
    ".dockerignore": ("tests/test_container.py",),
    "environment.yml": ("tests/test_environment.py",),
    "constraints.txt": ("tests/test_environment.py",),
    "pyproject.toml": ("tests/test_environment.py",),
    "site": ("tests/test_site.py",),
    "hub": ("tests/hub",),
    "benchmarks": ("tests/test_benchmarks.py",),
    "course": ("tests/classroom/test_recorded.py",),
    "notebooks": ("tests/test_links.py", "tests/classroom/test_problems.py"),
}


def changed(root: Path, since="HEAD") -> list[Path]:
    """Files that differ from commit `since` or are new to git.  Raises CalledProcessError."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", "-z", since, "--"],
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
    )
    names = "".join(
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
        for command in commands
    )
    return sorted({Path(name) for name in names.split("\0") if name})


def tests_of(path: Path) -> list[Path]:
    """The tests that a changed file affects, whether or not they are there."""
    top, *folders = path.parts[:-1] or ("",)
    if top == "tests":
        return [path if path.name.startswith("test_") else path.parent]
    if top in ("course", ".ci") and path.suffix == ".py":
        return [Path("tests", *folders, f"test_{path.name}")]
    named = ELSEWHERE.get(str(path)) or ELSEWHERE.get(top, ())
    return [Path(test) for test in named]


def affected(root: Path, since="HEAD") -> list[str]:
    """What pytest is to run, each once."""
    wanted = dict.fromkeys(map(Path, ALWAYS))
    for path in changed(root, since):
        wanted |= dict.fromkeys(tests_of(path))
    there = [test for test in wanted if (root / test).exists()]
    return [str(test) for test in there if not set(test.parents).intersection(there)]


if __name__ == "__main__":
    try:
        print(*affected(Path.cwd(), *sys.argv[1:]))
    except (OSError, subprocess.CalledProcessError) as trouble:
        sys.exit(f"git cannot say what has changed: {trouble}")
