"""What cells measure, with a recorded twin for machines on which it cannot be measured.

`measured_or_recorded(name, obstacle, measure)` is the one call of such a cell, `twin(name)`
what was recorded: a file in `records/`, with the machine and the date.  `make record` makes them.
"""

import datetime
import json
from pathlib import Path
from typing import Any, NamedTuple

from course.classroom import provenance

RECORDS = Path(__file__).with_name("records")
MEASURED, RECORDED = "measured here", "recorded"


class Record(NamedTuple):
    """A `value` that was measured: `what` it is, with its unit, and where, when and by which
    `command`.  `load` is the machine's before that began; None where nobody noted it."""

    what: str
    machine: str
    versions: str
    date: str
    load: float | None
    command: str
    value: Any

    def __str__(self):
        said = f"{RECORDED}: {self.machine}, {self.date}"
        if self.load is None:
            return said
        said = f"{said}, load before it began {self.load:.1f}"
        elsewhere = self.machine != provenance.machine()
        return f"{said}. It was another machine than this one." if elsewhere else said

    def save(self, path: Path):
        """Write it to a file, whole or not at all."""
        beside = path.with_name(f"{path.name}.new")
        beside.write_text(json.dumps(self._asdict(), indent=1) + "\n")
        beside.replace(path)


class Shown(NamedTuple):
    """A value, and `how` it came: MEASURED or RECORDED."""

    value: Any
    how: str


def measured_or_recorded(name: str, obstacle: str | None, measure) -> Shown:
    """What `measure()` returns, or the twin called `name` where there is an `obstacle`: a sentence
    that says why it cannot be measured here.  Prints which of the two it is.

    Either comes as JSON has it: a tuple as a list, keys as texts.  Record takes what the value is
    from the docstring of `measure`.
    """
    if obstacle:
        record = twin(name)
        print(f"{obstacle}\n{record}")
        return Shown(record.value, RECORDED)
    print(f"{MEASURED}: {provenance.machine()}, {datetime.date.today()}")
    return Shown(plain(measure()), MEASURED)


def plain(value):
    """A value as it comes back from a file; seconds to the nanosecond."""
    return json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 9))


def twin(name: str) -> Record:
    """What was recorded under this name.  Raises ValueError where there is no such file."""
    path = RECORDS / f"{name}.json"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in RECORDS.glob("*.json")))
        raise ValueError(f"nothing is recorded as {name!r}, only {known}")
    return Record(**json.loads(path.read_text()))
