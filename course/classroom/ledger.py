"""The learner's ledger as a file: read it, change it, never lose it.

What stands in it is decided in `progress.py`; nothing leaves the machine by itself.
"""

import atexit
import fcntl
import json
import os
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache
from itertools import count
from pathlib import Path

RECORDS = {
    "exercises": {"tries": 0, "hints": 0, "right": False},
    "predictions": {"said": None, "measured": None, "unit": "", "notebook": ""},
}
EMPTY = {"version": 1} | {part: {} for part in RECORDS}
PATIENCE_S, PAUSE_S = 5.0, 0.002  # with whoever else holds the lock


def location() -> Path:
    """Where the ledger is: COURSE_PROGRESS, or course/progress.json in the user's data folder."""
    if named := os.environ.get("COURSE_PROGRESS"):
        return absolute(os.path.expanduser(named))
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return absolute(os.path.join(os.path.expanduser(data), "course", "progress.json"))


@cache
def absolute(name: str) -> Path:
    """A file as seen from the folder in which its name was first met, though that may be left."""
    with suppress(OSError):  # the folder has been removed
        return Path(name) if name.startswith("~") else Path(name).absolute()
    return Path(name)


@cache
def ledger(path: Path) -> "Ledger":
    """The one ledger of this process for a file: what cannot be written outlives the call here."""
    opened = Ledger(path)
    atexit.register(opened.save)
    return opened


class Ledger:
    """Entries in a JSON file that several notebooks may have open at once.

    What is no ledger, or no record of one, is kept in a file beside it, and said so.  While nothing
    can be written, changes are kept here, after one warning, and written before the next.
    """

    def __init__(self, path: Path):
        self.path, self.unsaved, self.in_trouble = path, [], False

    def update(self, change):
        """Apply `change(entries)` and keep the entries; returns what `change` returned."""
        try:
            return self._update_file(change, 0 if self.in_trouble else PATIENCE_S)
        except OSError as trouble:
            if not self.in_trouble:
                self.in_trouble = True
                note(f"your progress is kept for this session only ({trouble})")
            return self._update_here(change)

    def entries(self) -> dict:
        """A copy of all entries."""
        return self.update(deepcopy)

    def save(self):
        """Write what could not be written before, if it can be now."""
        if self.unsaved:
            with suppress(OSError):
                self._update_file(lambda entries: None, PATIENCE_S)

    def _update_file(self, change, patience_s):
        path = followed(self.path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(path.with_name(path.name + ".lock"), patience_s) as alone:
            before = read_or_keep_aside(path)
            entries, earlier = deepcopy(before), len(self.unsaved)
            for unsaved in self.unsaved[:earlier]:
                unsaved(entries)
            result = change(entries)
            if entries != before:
                replace(path, entries, alone)
            del self.unsaved[:earlier]
        self.in_trouble = False
        return result

    def _update_here(self, change):
        entries = self._as_found()
        for unsaved in self.unsaved:
            unsaved(entries)
        before = deepcopy(entries)
        result = change(entries)
        if entries != before:
            self.unsaved.append(change)
        return result

    def _as_found(self):
        with suppress(OSError, ValueError, RecursionError):
            return parsed(self.path.read_bytes())[0]
        return deepcopy(EMPTY)


def note(sentence: str):
    """Tell the learner without stopping the notebook, even where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(sentence, stacklevel=2)


def followed(path: Path) -> Path:
    """The file that a path leads to; a link, as a synchronised folder may have one, is followed if
    it is this user's own.  Raises OSError for another's."""
    if path.parts[:1] and path.parts[0].startswith("~"):
        raise OSError(f"there is no home folder for {path}")
    if path.is_symlink() and path.lstat().st_uid != os.getuid():
        raise OSError(f"{path} is a link of another user")
    return Path(os.path.realpath(path))


def read_or_keep_aside(path: Path) -> dict:
    """The entries in a ledger file; what does not fit goes into a file beside it."""
    try:
        entries, strange = parsed(path.read_bytes())
    except FileNotFoundError:
        return deepcopy(EMPTY)
    except (ValueError, RecursionError) as trouble:
        aside = first_free(path)
        path.rename(aside)
        note(f"{path} is no ledger of this course ({trouble}): it is kept as {aside.name}")
        return deepcopy(EMPTY)
    if strange:
        aside = first_free(path)
        replace(aside, strange)
        note(f"{path} has records that cannot be read: they are kept as {aside.name}")
        replace(path, entries)
    return entries


def parsed(content: bytes) -> tuple[dict, dict]:
    """The entries in a ledger file, and those that are no records, as {part: {name: record}}.

    Raises ValueError where it is no ledger.
    """
    entries = json.loads(content.decode("utf-8"))
    if not isinstance(entries, dict) or entries.get("version") != EMPTY["version"]:
        raise ValueError(f"version {EMPTY['version']} is expected")
    strange = {}
    for part, fields in RECORDS.items():
        records = entries.get(part)
        if not isinstance(records, dict):
            raise ValueError(f"its {part} are not a table of records")
        unfit = {name: r for name, r in records.items() if not fits(r, fields)}
        strange |= {part: unfit} if unfit else {}
        entries[part] = {name: r for name, r in records.items() if name not in unfit}
    return entries, strange


def fits(record, fields: dict) -> bool:
    """Whether a record has these fields, with values of the same types (None: of any type)."""
    return isinstance(record, dict) and all(
        name in record and (value is None or type(record[name]) is type(value))
        for name, value in fields.items()
    )


def first_free(path: Path) -> Path:
    """The first free name of the form progress.json.unreadable-1."""
    names = (path.with_name(f"{path.name}.unreadable-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def replace(path: Path, entries: dict, sweep=False):
    """Write the whole file beside the old one, then swap: a reader meets the old or the new one.

    `sweep` away what was left beside it by programs that were killed while they wrote.
    """
    for left in path.parent.glob(f"{path.name}.*.new") if sweep else ():
        left.unlink(missing_ok=True)
    number, beside = tempfile.mkstemp(".new", f"{path.name}.", path.parent)
    try:
        with open(number, "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        Path(beside).unlink(missing_ok=True)


@contextmanager
def locked(path: Path, patience_s: float):
    """Hold `path` against other notebooks; yields False where this file system has no locks.

    Raises TimeoutError, an OSError, if another holds it for `patience_s`.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(path, flags, 0o600)
    try:
        yield taken(lock, patience_s)
    except BlockingIOError:
        raise TimeoutError(f"another notebook holds {path.name}") from None
    finally:
        os.close(lock)


def taken(lock: int, patience_s: float) -> bool:
    """Take a lock.  Raises BlockingIOError if another holds it for `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)
        except OSError:
            return False
