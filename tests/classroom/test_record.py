"""A notebook's own cells measure what is recorded; what cannot be measured stays as it is."""

import json
import os

import pytest

from course.classroom import record as program
from course.classroom import recorded
from course.classroom.record import code_cells, main, measured_in, quickest, run_cells
from course.classroom.recorded import twin

CELLS = [
    "from course.classroom.recorded import measured_or_recorded",
    "raise SystemExit('nobody needs this cell')",
    "def measure():\n    'Seconds of nothing.'\n    return {'s': (0.1234567894321,)}",
    "why_not = None",
    "value, how = measured_or_recorded('ping_pong', why_not, measure)",
]
THERE = {"machine": "9 cores (Abacus 9)", "versions": "Python 9", "date": "2026-11-23", "load": 0.5}


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RECORDS", tmp_path)
    monkeypatch.setattr(program, "ENOUGH_S", 1e-9)
    (tmp_path / "ping_pong.json").write_text(
        json.dumps({"what": "", "command": "", "value": [1], **THERE})
    )
    return tmp_path


def notebook(folder, cells):
    path = folder / "09_book.ipynb"
    source = [{"cell_type": "code", "source": cell} for cell in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "a"}, *source]}))
    return path


def test_what_the_cell_measures_is_kept_with_where_and_when(records, capsys):
    path = notebook(records, CELLS)
    assert measured_in(code_cells(path)) == {"ping_pong": 4}
    assert program.record(path, {"ping_pong": 4}, THERE) == []
    kept = twin("ping_pong")
    assert kept.value == {"s": [0.123456789]}  # to the nanosecond
    assert kept[1:5] == tuple(THERE.values()) and kept.what == "Seconds of nothing."
    assert kept.command == "python -m course.classroom.record ping_pong"
    assert "measuring ping_pong" in capsys.readouterr().out
    assert sorted(os.listdir(records)) == ["09_book.ipynb", "ping_pong.json"]


def test_other_names_of_the_notebook_are_measured_and_not_kept(records):
    second = "other, _ = measured_or_recorded('crossing', None, lambda: value)"
    path = notebook(records, [*CELLS, second])
    assert program.record(path, {"crossing": 5}, THERE) == []
    assert twin("ping_pong").value == [1] and twin("crossing").value == {"s": [0.123456789]}


def test_where_a_world_is_missing_the_file_stays_as_it_is(records, capsys):
    before = (records / "ping_pong.json").read_bytes()
    path = notebook(records, [*CELLS[:3], "why_not = 'no such world'", CELLS[4]])
    assert program.record(path, {"ping_pong": 4}, THERE) == ["ping_pong"]
    assert (records / "ping_pong.json").read_bytes() == before
    assert "ping_pong.json stays as it is." in capsys.readouterr().out


def test_what_fails_leaves_the_file_as_it_is(records):
    before = (records / "ping_pong.json").read_bytes()
    path = notebook(records, [*CELLS[:2], "def measure():\n    return 1 / 0", *CELLS[3:]])
    with pytest.raises(ZeroDivisionError):
        program.record(path, {"ping_pong": 4}, THERE)
    assert (records / "ping_pong.json").read_bytes() == before


def test_the_quickest_of_several_runs_counts(monkeypatch):
    monkeypatch.setattr(program, "ENOUGH_S", 10)
    clock = iter([0.0, 5.0, 5.0, 8.0, 8.0, 12.0])
    values = iter("abcd")
    monkeypatch.setattr(program.time, "perf_counter", lambda: next(clock))
    assert quickest(lambda: next(values)) == "b"
    assert next(values) == "d"  # it was repeated after 8 s, and not after 12


def test_cells_run_with_something_else_in_a_names_place(tmp_path):
    path = notebook(tmp_path, ["import os\nn = 1", "m = n", "k = m"])
    assert run_cells(path, [2], n=5)["k"] == 5


def test_every_name_is_measured_in_one_cell():
    found = [name for path in sorted((program.BOOK / "notebooks").glob("[0-9]*.ipynb"))
             for name in measured_in(code_cells(path))]  # fmt: skip
    assert len(found) == len(set(found)) > 0


def test_names_are_recorded_notebook_by_notebook(monkeypatch, capsys):
    asked = []

    def noted(notebook, calls, there):
        asked.append((notebook.name[:2], list(calls)))
        return ["mpi_sums"] if "mpi_sums" in calls else []

    monkeypatch.setattr(program, "record", noted)
    monkeypatch.setattr(program.os, "getloadavg", lambda: (3.14159, 0, 0))
    assert main(["layer_steps", "mpi_sums", "ping_pong"]) == 1
    assert asked == [("08", ["ping_pong", "layer_steps"]), ("09", ["mpi_sums"])]
    assert "The load is 3.14: times recorded now are those of a busy" in capsys.readouterr().out
    monkeypatch.setattr(program.os, "getloadavg", lambda: (0.2, 0, 0))
    main([])
    assert capsys.readouterr().out == "" and sum(len(names) for _, names in asked) == 3 + 11


def test_a_name_that_no_notebook_has_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["ping-pong"])
    assert "no notebook measures 'ping-pong', but ping_pong, crossing" in capsys.readouterr().err
