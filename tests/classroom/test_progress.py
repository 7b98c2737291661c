"""What the ledger says to the learner and to a teacher, and what may be written into it."""

import json

import numpy as np
import pytest
import torch

from course.classroom.exercises import check, predict
from course.classroom.ledger import location
from course.classroom.progress import export, plain, progress

pytestmark = pytest.mark.usefixtures("small_book")


def test_the_overview(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/91_small.ipynb")
    assert repr(progress()) == (
        "notebook                done  exercises\n"
        "91_small                0/3   open: double, nine, repair\n"
        "92_tiny                 0/1   open: empty\n"
        "\n"
        "no predictions yet"
    )
    check("double", lambda x: 2 * x)
    check("nine", 8)
    predict("How many?", 24, unit="MB").compare(18)
    predict("Does it hang?", "yes")
    assert repr(progress()) == (
        "notebook                done  exercises\n"
        "91_small                1/3   done: double; open: nine, repair\n"
        "92_tiny                 0/1   open: empty\n"
        "\n"
        "predictions\n"
        "  How many?\n"
        "    you said 24, it is 18 MB: 1.3 times too much\n"
        "  Does it hang?\n"
        "    you said 'yes', not yet compared"
    )


def test_export(tmp_path, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/91_small.ipynb")
    predict("How many?", 24).compare(18)
    entries = json.loads(export(tmp_path / "out.json").read_text())
    assert entries["predictions"]["How many?"] == {
        "said": 24, "measured": 18, "unit": "", "notebook": "91_small",
    }  # fmt: skip
    assert export(tmp_path / "out.txt").read_text() == progress() + "\n"


@pytest.mark.parametrize("name", ["my.ipynb", "my.json", "my.txt"])
def test_export_overwrites_its_own_copies_alone(tmp_path, name):
    file = tmp_path / name
    file.write_text('{"cells": []}')
    with pytest.raises(FileExistsError, match="is there already and no copy of a ledger"):
        export(file)
    assert file.read_text() == '{"cells": []}'
    file.unlink()
    export(file)
    check("nine", 9)
    assert "nine" in export(file).read_text()


class Odd:
    def __str__(self):
        raise RuntimeError("no words")


LOOP = [1]
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ([torch.tensor(1.0), torch.tensor([2])], [1.0, [2]]),
        ((np.float32(0.5), np.int64(3)), [0.5, 3]),
        ([torch.tensor(4)], 4),
        ([{1}, {2}], ["{1}", "{2}"]),
        ({"a": 1}, "{'a': 1}"),
        (torch.float32, "torch.float32"),
        (Odd(), "a Odd"),
        ([Odd(), 2], ["a Odd", 2]),
        (10**5000, "a int"),
        (LOOP, [1, [1, [1, [1, "[1, [...]]"]]]]),
        (list(range(5000)), str(list(range(5000)))[:1000]),
        (True, True),
        (..., ...),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_guess_can_be_kept(value, kept, ledger_file):
    assert plain(value) == kept
    guess = predict("What?", value)
    repr(guess.compare(value))
    if value is not ...:
        assert json.loads(ledger_file.read_text())["predictions"]["What?"]["said"] == kept
    assert "predictions" in progress()


def test_a_list_without_end_is_kept_in_part():
    deep = []
    for _ in range(100_000):
        deep = [deep, 1]
    assert plain(deep)[1] == 1


@pytest.mark.parametrize(("question", "unit"), [("?", 5), (7, ""), ([1], None)])
def test_a_question_and_a_unit_become_text(question, unit, ledger_file):
    check("nine", 9)
    predict(question, 3, unit).compare(4)
    assert "done: nine" in progress()
    assert not list(ledger_file.parent.glob("*unreadable*"))
    assert str(question) in json.loads(location().read_text())["predictions"]
