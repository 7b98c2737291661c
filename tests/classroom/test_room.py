"""The files of a room: counted, left out where they are no ledgers, and never changed."""

import json

import pytest
from matplotlib.image import imread

from course.classroom.ledger import EMPTY
from course.classroom.progress import export, record_prediction, record_verdict
from course.classroom.room import collect, factors, guesses, main, solved, summary


def entries(exercises=(), predictions=(), **more):
    """A ledger with solved and unsolved exercises {name: right}, and predictions."""
    records = {name: {"tries": 1, "hints": 0, "right": right} for name, right in exercises}
    told = {question: {"said": said, "measured": measured, "unit": "GB", "notebook": ""}
            for question, said, measured in predictions}  # fmt: skip
    return EMPTY | {"exercises": records, "predictions": told} | more


FIRST = entries([("best_grid", True)], [("How many?", 2, 4), ("Does it?", "yes", "no")])
SECOND = entries([("best_grid", False), ("young_minutes", True)], [("How many?", 8, 4)])


@pytest.fixture
def folder(tmp_path):
    room = tmp_path / "room"
    (room / "left").mkdir(parents=True)
    (room / "first.json").write_text(json.dumps(FIRST))
    (room / "left" / "second.json").write_text(json.dumps(SECOND | {"name": "Ada"}))
    return room


def test_what_cannot_be_read_is_told_and_nothing_is_changed(folder):
    broken = {"torn.json": b'{"version": 1', "other.json": b"[1, 2]", "bytes.json": b"\xff\xfe",
              "deep.json": b"[" * 100_000}  # fmt: skip
    strange = json.dumps(entries() | {"exercises": {"best_grid": {"tries": "many"}}}).encode()
    for name, content in (broken | {"strange.json": strange}).items():
        (folder / name).write_bytes(content)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ledgers, told = collect(folder)
    assert len(ledgers) == 3  # the two, and what is left of the strange one
    assert [name for name in broken if any(name in each for each in told)] == list(broken)
    assert any("strange.json has 1 records that are left out" in each for each in told)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_solved_and_tried_are_counted_in_the_order_of_the_book(folder):
    ledgers, told = collect(folder)
    assert told == []
    assert solved(ledgers) == {"best_grid": (1, 2), "young_minutes": (1, 1)}
    assert list(solved(ledgers[::-1])) == ["best_grid", "young_minutes"]


def test_guesses_are_factors_of_what_was_measured(folder):
    found = guesses(collect(folder)[0])
    assert found["How many?"] == [(2, 4, "GB"), (8, 4, "GB")]
    assert factors(found["How many?"]) == [0.5, 2]
    assert factors(found["Does it?"]) == []
    assert factors([(0, 4, ""), (-1, 4, ""), (True, 4, ""), (3, 3, "")]) == [1]


def test_a_guess_that_was_not_compared_is_not_in_it():
    assert guesses([entries(predictions=[("How many?", 2, None)])]) == {}


def test_the_summary_has_counts_and_no_other_names_than_those_given(folder):
    said = summary(collect(folder)[0])
    assert said.startswith("learners: 2\nwith a name: Ada\n")
    assert "best_grid: 1 of 2 have solved it, 1 try" in said
    assert "Does it? 0 of 1 said what was measured; most often: 'yes'" in said
    assert "with a name" not in summary([FIRST])


def test_a_room_of_exported_files_becomes_one_picture(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "own" / "progress.json"))
    record_verdict("young_minutes", right=True)
    record_prediction("How many?", 4, 4, "GB")
    export(folder / "third.json", name="Grace")
    main([str(folder), "--out", str(tmp_path / "wall.png")])
    said = capsys.readouterr().out
    assert "learners: 3\nwith a name: Ada, Grace" in said
    assert "young_minutes: 2 of 3 have solved it" in said
    assert imread(tmp_path / "wall.png").std() > 0.05


def test_an_empty_folder_and_none_are_told(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert f"there is no ledger in {tmp_path}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "nowhere")])
    assert "is no folder: name the one with the exported files" in capsys.readouterr().err
