"""The ledger: counted right, never lost, and nothing stops where it cannot be written."""

import json
import threading
import warnings

import pytest

from course.classroom import ledger as ledgers
from course.classroom.exercises import check, hint, predict
from course.classroom.ledger import EMPTY, Ledger, location
from course.classroom.progress import export, progress, record_hint, record_prediction

pytestmark = pytest.mark.usefixtures("small_book")
BAD = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"version": 2, "exercises": {}, "predictions": {}}',
    b'{"version": 1, "exercises": []}',
    b'{"version": 1, "exercises": {"double": 3}, "predictions": {}}',
    b'{"version": 1, "exercises": {"double": {"tries": "2", "hints": 0, "right": true}},'
    b' "predictions": {}}',
    b'{"version": 1, "exercises": {"double": {"tries": 2, "right": true}}, "predictions": {}}',
]


def test_where_the_ledger_is(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", "~/mine.json")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert location() == tmp_path / "mine.json"
    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert location() == tmp_path / ".local/share/course/progress.json"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert location() == tmp_path / "xdg/course/progress.json"


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
        "    you said 24, measured 18 MB: 1.3 times too much\n"
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


@pytest.mark.parametrize("content", BAD)
def test_a_corrupt_file_is_kept_aside(content, ledger_file):
    ledger_file.parent.mkdir()
    ledger_file.write_bytes(content)
    with pytest.warns(match=r"no ledger of this course.*is kept as progress.json.unreadable-1"):
        check("nine", 9)
    assert ledger_file.with_name("progress.json.unreadable-1").read_bytes() == content
    assert json.loads(ledger_file.read_text())["exercises"]["nine"]["right"] is True


def test_corrupt_files_do_not_replace_one_another(ledger_file):
    ledger_file.parent.mkdir()
    for number in (1, 2, 3):
        ledger_file.write_text(f"broken {number}")
        with pytest.warns(match=f"unreadable-{number}"):
            progress()
    kept = sorted(p.read_text() for p in ledger_file.parent.glob("*unreadable*"))
    assert kept == ["broken 1", "broken 2", "broken 3"]


def test_where_nothing_can_be_written_a_session_still_counts(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.json"))
    with pytest.warns(match="your progress is kept for this session only") as caught:
        assert check("nine", 9).right
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "hint 1" in hint("double") and "hint 2" in hint("double")
        assert "1/3   done: nine" in progress()


def test_a_read_only_ledger_is_read_and_left_alone(ledger_file, monkeypatch):
    check("nine", 9)
    before = ledger_file.read_bytes()

    def refuse(path, entries):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(ledgers, "replace", refuse)
    with pytest.warns(match=r"this session only \(.*Read-only file system"):
        check("double", lambda x: 2 * x)
    assert "2/3   done: double, nine" in progress()
    assert ledger_file.read_bytes() == before


def test_no_home_folder_at_all(monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", "~nobody-of-that-name/progress.json")
    with pytest.warns(match="there is no home folder for ~nobody-of-that-name"):
        assert check("nine", 9).right


def test_a_write_that_fails_halfway_leaves_the_old_file(ledger_file, monkeypatch):
    check("nine", 9)
    before = ledger_file.read_bytes()

    def fails(entries, file, **_):
        file.write("{half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", fails)
    with pytest.warns(match="No space left"):
        check("double", lambda x: 2 * x)
    assert ledger_file.read_bytes() == before
    assert not list(ledger_file.parent.glob("*.new"))


def one_more(entries):
    entry = entries["exercises"].setdefault("both", {"tries": 0, "hints": 0, "right": False})
    entry["tries"] += 1


def test_two_notebooks_at_once_lose_nothing(ledger_file, monkeypatch):
    """While one changes the ledger, the other waits; else it would be overwritten by the first."""
    monkeypatch.setattr(ledgers, "LOCK_TRIES", 10_000)
    other = threading.Thread(target=Ledger(ledger_file).update, args=(one_more,))

    def change(entries):
        other.start()
        other.join(0.3)  # without the lock it is done by then
        one_more(entries)

    Ledger(ledger_file).update(change)
    other.join()
    assert json.loads(ledger_file.read_text())["exercises"]["both"]["tries"] == 2


def test_a_lock_that_is_never_given_back_stops_nobody(ledger_file, monkeypatch):
    monkeypatch.setattr(ledgers, "LOCK_TRIES", 2)
    with ledgers.locked(ledger_file.parent.parent / "progress.json.lock"):
        monkeypatch.setenv("COURSE_PROGRESS", str(ledger_file.parent.parent / "progress.json"))
        assert check("nine", 9).right
        assert "done: nine" in progress()


def test_a_file_system_without_locks(monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(ledgers.fcntl, "flock", refuse)
    assert check("nine", 9).right
    assert "done: nine" in progress()


def test_looking_does_not_write(ledger_file):
    progress()
    assert not ledger_file.exists()


def test_what_is_recorded_fits_the_ledgers_own_form(ledger_file):
    record_prediction("?", [1, 2], 3.5, "MB")
    record_hint("double", 2)
    assert ledgers.parsed(ledger_file.read_bytes()) != EMPTY
