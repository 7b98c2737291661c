"""The learner's ledger as a file: read it, change it, never lose it.

What stands in it is decided in `progress.py`; nothing leaves the machine by itself.
"""

import fcntl
import json
import os
import time
import warnings
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache
from pathlib import Path

RECORDS = {
    "exercises": {"tries": 0, "hints": 0, "right": False},
    "predictions": {"said": None, "measured": None, "unit": "", "notebook": ""},
}
EMPTY = {"version": 1} | {part: {} for part in RECORDS}
LOCK_TRIES, LOCK_PAUSE_S = 50, 0.02


def location() -> Path:
    """Where the ledger is: COURSE_PROGRESS, or course/progress.json in the user's data folder."""
    if named := os.environ.get("COURSE_PROGRESS"):
        return Path(os.path.expanduser(named))
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.path.expanduser(data)) / "course" / "progress.json"


@cache
def ledger(path: Path) -> "Ledger":
    """The one ledger of this process for a file: what cannot be written outlives the call here."""
    return Ledger(path)


class Ledger:
    """Entries in a JSON file that several notebooks may have open at once.

    A file that is not a ledger is kept under another name, and said so.  Where nothing can be
    written, the entries live as long as the notebook's kernel does, after one warning.
    """

    def __init__(self, path: Path):
        self.path, self.unsaved = path, None

    def update(self, change=lambda entries: None):
        """Apply `change(entries)` and keep the entries; returns what `change` returned."""
        if self.unsaved is None:
            try:
                return self._update_file(change)
            except OSError as trouble:
                self.unsaved = self._as_found()
                note(f"your progress is kept for this session only ({trouble})")
        return change(self.unsaved)

    def entries(self) -> dict:
        """A copy of all entries."""
        return self.update(deepcopy)

    def _update_file(self, change):
        if str(self.path).startswith("~"):
            raise OSError(f"there is no home folder for {self.path}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(self.path.name + ".lock")):
            before = self._read_or_keep_aside()
            entries = deepcopy(before)
            result = change(entries)
            if entries != before:
                replace(self.path, entries)
        return result

    def _read_or_keep_aside(self):
        try:
            return parsed(self.path.read_bytes())
        except FileNotFoundError:
            return deepcopy(EMPTY)
        except ValueError as trouble:
            aside = keep_aside(self.path)
            note(f"{self.path} is no ledger of this course ({trouble}): it is kept as {aside.name}")
            return deepcopy(EMPTY)

    def _as_found(self):
        with suppress(OSError, ValueError):
            return parsed(self.path.read_bytes())
        return deepcopy(EMPTY)


def note(sentence: str):
    """Tell the learner without stopping the notebook."""
    warnings.warn(sentence, stacklevel=2)


def parsed(content: bytes) -> dict:
    """The entries in a ledger file.  Raises ValueError where it is not one."""
    entries = json.loads(content.decode("utf-8"))
    if not isinstance(entries, dict) or entries.get("version") != EMPTY["version"]:
        raise ValueError(f"version {EMPTY['version']} is expected")
    for part, fields in RECORDS.items():
        records = entries.get(part)
        if not isinstance(records, dict) or not all(fits(r, fields) for r in records.values()):
            raise ValueError(f"its {part} are not a table of records")
    return entries


def fits(record, fields: dict) -> bool:
    """Whether a record has these fields, with values of the same types (None: of any type)."""
    return isinstance(record, dict) and all(
        name in record and (value is None or type(record[name]) is type(value))
        for name, value in fields.items()
    )


def keep_aside(path: Path) -> Path:
    """Rename `path` to the first free name of the form progress.json.unreadable-1."""
    number = 1
    while (aside := path.with_name(f"{path.name}.unreadable-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def replace(path: Path, entries: dict):
    """Write the whole file beside the old one, then swap: a reader meets the old or the new one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def locked(path: Path):
    """Hold `path` against other notebooks; after a second, or where locks are unknown, without."""
    with open(path, "w") as file:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S)
            except OSError:
                break
        yield
