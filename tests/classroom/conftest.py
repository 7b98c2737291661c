"""Every test has a ledger of its own, and none touches the one of whoever runs the tests; no figure
opens a window, or is left to the next test."""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from course.classroom.ledger import ledger


@pytest.fixture(autouse=True)
def ledger_file(tmp_path, monkeypatch):
    path = tmp_path / "own" / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    yield path
    ledger(path).unsaved.clear()  # else it is written when pytest ends


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("agg")
    yield
    plt.close("all")


@pytest.fixture
def small_book(tmp_path, monkeypatch):
    """A book of two small notebooks in place of the real one."""
    from course.classroom import diagnosis, problems

    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "p91_small.py").write_text(SMALL)
    (folder / "p92_tiny.py").write_text(TINY)
    monkeypatch.setattr(problems, "__path__", [str(folder)])
    monkeypatch.setattr(diagnosis, "NOT_THE_LEARNERS", (*diagnosis.NOT_THE_LEARNERS, str(folder)))
    yield folder
    for name in ("p91_small", "p92_tiny"):
        sys.modules.pop(f"{problems.__name__}.{name}", None)
        vars(problems).pop(name, None)


SMALL = '''
from course.classroom.exercises import Exercise, Wrong

def double(x):
    """Twice x."""
    return 2 * x

def check_double(answer):
    if answer(3) == 3:
        raise Wrong("x itself came back.")
    if answer(3) != 6:
        raise Wrong(f"twice 3 is 6, not {answer(3)}.")
    return "in one line."

def check_nine(answer):
    if answer != 9:
        raise Wrong(f"{answer} is not it.")

def halve(x):
    """Half of x."""
    y = x / 3
    return y

def check_halve(answer):
    if answer(4) != 2:
        raise Wrong("half of 4 is 2.")

EXERCISES = [
    Exercise("double", "write double(x), which returns twice x.", check_double,
             ("think of addition.", "x + x"), double),
    Exercise("nine", "how much is 3 x 3?", check_nine, ("more than 8.",), "9: three rows."),
    Exercise("repair", "repair halve(x).", check_halve, (), double, given=halve),
]
'''
TINY = """
from course.classroom.exercises import Exercise

EXERCISES = [Exercise("empty", "anything.", lambda answer: None, (), "anything")]
"""
