"""The ledger's file: never lost, never another's, and nothing stops where it cannot be written."""

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from course.classroom import ledger as ledgers
from course.classroom.exercises import check, hint
from course.classroom.ledger import EMPTY, Ledger, ledger, location
from course.classroom.progress import progress, record_hint, record_prediction

pytestmark = pytest.mark.usefixtures("small_book")
ROOT = Path(__file__).parents[2]
BAD = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"version": 2, "exercises": {}, "predictions": {}}',
    b'{"version": 1, "exercises": []}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
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


@pytest.mark.parametrize("content", BAD)
def test_a_corrupt_file_is_kept_aside(content, ledger_file):
    ledger_file.parent.mkdir()
    ledger_file.write_bytes(content)
    with pytest.warns(match=r"no ledger of this course.*is kept as progress.json.unreadable-1"):
        check("nine", 9)
    assert ledger_file.with_name("progress.json.unreadable-1").read_bytes() == content
    assert json.loads(ledger_file.read_text())["exercises"]["nine"]["right"] is True


GOOD = {"tries": 2, "hints": 0, "right": True}


@pytest.mark.parametrize("bad", [3, {"tries": "2", "hints": 0, "right": True}, {"tries": 2}])
def test_records_that_do_not_fit_are_kept_aside_and_the_others_stay(bad, ledger_file):
    ledger_file.parent.mkdir()
    entries = EMPTY | {"exercises": {"double": bad, "nine": GOOD}}
    ledger_file.write_text(json.dumps(entries))
    with pytest.warns(match=r"records that cannot be read: they are kept as .*unreadable-1"):
        assert "done: nine" in progress()
    aside = json.loads(ledger_file.with_name("progress.json.unreadable-1").read_text())
    assert aside == {"exercises": {"double": bad}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "1/3   done: nine" in progress()


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

    def refuse(*_):
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
    monkeypatch.setattr(ledgers, "PATIENCE_S", 100)
    other = threading.Thread(target=Ledger(ledger_file).update, args=(one_more,))

    def change(entries):
        other.start()
        other.join(0.3)  # without the lock it is done by then
        one_more(entries)

    Ledger(ledger_file).update(change)
    other.join()
    assert json.loads(ledger_file.read_text())["exercises"]["both"]["tries"] == 2


WRITER = """
import sys
from course.classroom.progress import record_prediction
for number in range(int(sys.argv[2])):
    record_prediction(f"{sys.argv[1]}/{number}", number, number)
"""


def writer(name, count):
    command = [sys.executable, "-W", "error", "-c", WRITER, str(name), str(count)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_eight_writers_lose_nothing(ledger_file):
    writers = [writer(name, 25) for name in range(8)]
    assert [each.wait() for each in writers] == [0] * 8
    assert len(json.loads(ledger_file.read_text())["predictions"]) == 200


def test_a_lock_that_is_held_for_long_stops_nobody_and_loses_nothing(ledger_file, monkeypatch):
    monkeypatch.setattr(ledgers, "PATIENCE_S", 0.01)
    record_hint("double", 2)
    with open(ledger_file.with_name("progress.json.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.warns(match=r"this session only \(another notebook holds progress.json.lock"):
            assert check("nine", 9).right
        assert "done: nine" in progress()
        assert "nine" not in ledger_file.read_text()
    ledger(ledger_file).save()
    assert "nine" in ledger_file.read_text()


def test_a_trouble_that_passes_is_over(ledger_file):
    lock = ledger_file.with_name("progress.json.lock")
    lock.mkdir(parents=True)
    with pytest.warns(match="this session only"):
        check("nine", 9)
    hint("double")
    lock.rmdir()
    record_prediction("now?", 1)
    entries = json.loads(ledger_file.read_text())
    assert sorted(entries["exercises"]) == ["double", "nine"] and "now?" in entries["predictions"]


def test_what_was_not_saved_is_merged_with_what_others_wrote(ledger_file, monkeypatch):
    here, there = Ledger(ledger_file), Ledger(ledger_file)
    here.update(one_more)
    monkeypatch.setattr(ledgers, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.warns(match="full"):
        here.update(one_more)
    monkeypatch.undo()
    there.update(one_more)
    here.update(lambda entries: None)
    assert there.entries()["exercises"]["both"]["tries"] == 3


LATE = """
import os, pathlib
lock = pathlib.Path(os.environ["COURSE_PROGRESS"] + ".lock")
lock.unlink(), lock.mkdir()
record_prediction("late", 1)
lock.rmdir()
"""


def test_what_could_not_be_saved_is_at_the_end_of_the_program(ledger_file):
    code = f"{WRITER}{LATE}"
    command = [sys.executable, "-c", code, "early", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stderr.count("UserWarning: your progress") == 1
    assert sorted(json.loads(ledger_file.read_text())["predictions"]) == ["early/0", "late"]


def test_a_writer_that_was_killed_leaves_a_whole_ledger_and_its_leftovers_go(ledger_file):
    ledger_file.parent.mkdir()
    code = """
import os, signal
from course.classroom.progress import record_prediction
record_prediction("whole", 1)
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
record_prediction("half", 1)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert list(json.loads(ledger_file.read_text())["predictions"]) == ["whole"]
    assert len(list(ledger_file.parent.glob("*.new"))) == 1
    record_hint("double", 1)
    names = sorted(file.name for file in ledger_file.parent.iterdir())
    assert names == ["progress.json", "progress.json.lock"]


# Whose files


def test_nobody_else_can_read_it(ledger_file):
    old = os.umask(0)
    try:
        record_hint("double", 1)
    finally:
        os.umask(old)
    for file in ledger_file.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(ledger_file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("ending", ["lock", "new"])
def test_a_link_in_its_way_is_not_written_through(ending, ledger_file, tmp_path):
    name = {"lock": "progress.json.lock", "new": f"progress.json.{os.getpid()}.new"}[ending]
    ledger_file.parent.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (ledger_file.parent / name).symlink_to(precious)
    if name.endswith(".lock"):
        with pytest.warns(match="this session only"):
            assert check("nine", 9).right
    assert check("nine", 9).right
    assert precious.read_text() == "precious" and not ledger_file.is_symlink()
    assert "done: nine" in progress()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_of_ones_own_stays_a_link(there, ledger_file, tmp_path):
    target = tmp_path / "synchronised.json"
    if there:
        target.write_text(json.dumps(EMPTY))
    ledger_file.parent.mkdir()
    ledger_file.symlink_to(target)
    check("nine", 9)
    assert ledger_file.is_symlink() and "nine" in target.read_text()


def test_a_link_of_anothers_is_not_followed(ledger_file, tmp_path, monkeypatch):
    target = tmp_path / "precious"
    target.write_text("precious")
    ledger_file.parent.mkdir()
    ledger_file.symlink_to(target)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.warns(match="is a link of another user"):
        check("nine", 9)
    assert target.read_text() == "precious" and ledger_file.is_symlink()


def test_a_lock_that_is_a_fifo_stops_nobody(ledger_file):
    ledger_file.parent.mkdir()
    os.mkfifo(ledger_file.with_name("progress.json.lock"))
    assert check("nine", 9).right
    assert "done: nine" in progress()


def test_a_relative_name_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", f"{tmp_path.name}.json")
    monkeypatch.chdir(tmp_path)
    check("nine", 9)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert "done: nine" in progress()
    assert list((tmp_path / "below").iterdir()) == []


def test_a_note_is_no_error_where_warnings_are(ledger_file):
    ledger_file.parent.mkdir()
    ledger_file.write_text("junk")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error")
        assert check("nine", 9).right
    assert len(told) == 1


def test_a_file_system_without_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(ledgers.fcntl, "flock", refuse)
    assert check("nine", 9).right
    assert "done: nine" in progress()


def test_looking_does_not_write(ledger_file):
    progress()
    assert not ledger_file.exists()


def test_what_is_recorded_fits_the_ledgers_own_form(ledger_file):
    record_prediction("?", [1, 2], 3.5, "MB")
    record_hint("double", 2)
    entries, strange = ledgers.parsed(ledger_file.read_bytes())
    assert entries != EMPTY and not strange
