"""What the learner has tried, solved and predicted: recorded, shown in one cell, exported.

`progress()` is the overview; `export(path)` copies it for a teacher.
"""

import json
import math
import os
import re
import textwrap
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from course.classroom.ledger import RECORDS, ledger, location, parsed
from course.classroom.problems import catalogue

# Lines of output as long as JupyterLab shows them whole in a window of 1400 pixels.
PAGE = textwrap.TextWrapper(96, break_long_words=False, break_on_hyphens=False)
LARGEST, LONGEST, DEEPEST = 10**300, 1000, 4  # numbers, lists and texts, lists in lists


def in_lines(shown, printer, cycle):
    """How a notebook shows a sentence: in lines that fit, or JupyterLab would break words."""
    printer.text("\n".join(map(PAGE.fill, repr(shown).splitlines())))


class Text(str):
    """A string that a notebook shows as it stands, without quotes."""

    _repr_pretty_ = in_lines

    def __repr__(self):
        return str(self)


def record_verdict(name: str, right: bool):
    """Count a try; once right stays right, and later tries no longer count."""

    def change(entries):
        record = entries["exercises"].setdefault(name, dict(RECORDS["exercises"]))
        if not record["right"]:
            record.update(right=right, tries=record["tries"] + 1)

    ledger(location()).update(change)


def record_hint(name: str, most: int) -> int:
    """Count a hint; returns how many were given before this one, at most `most`."""

    def change(entries):
        record = entries["exercises"].setdefault(name, dict(RECORDS["exercises"]))
        given = min(record["hints"], most)
        record["hints"] = min(given + 1, most)
        return given

    return ledger(location()).update(change)


def record_prediction(question: str, said, measured=None, unit: str = ""):
    """Keep a guess and, once known, what was measured; the first guess that was compared stays."""
    fields = {"said": plain(said), "measured": plain(measured), "unit": str(unit)}

    def change(entries):
        record = entries["predictions"].setdefault(str(question), dict(RECORDS["predictions"]))
        if record["measured"] is None:
            record.update(fields, notebook=notebook())

    ledger(location()).update(change)


def notebook() -> str:
    """The name of the running notebook where JupyterLab tells it, else nothing."""
    return Path(os.environ.get("JPY_SESSION_NAME", "")).stem


def plain(value, depth=0):
    """A value as the ledger can keep it: numbers, texts, lists of them; a tensor or array of one
    element is its number, and what is too large or of another kind is told in words."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None or value is ... or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int) and abs(value) < LARGEST:
        return int(value)
    if isinstance(value, list | tuple) and len(value) <= LONGEST and depth < DEEPEST:
        parts = [plain(part, depth + 1) for part in value]
        return parts[0] if len(parts) == 1 and not depth else parts
    return in_words(value)


def in_words(value) -> str:
    """The beginning of a value's text, or its kind where it has none."""
    try:
        return str(value)[:LONGEST]
    except Exception:  # a learner's class may raise anything
        return f"a {type(value).__name__}"


def compared(said, measured, unit: str = "") -> str:
    """A guess beside what was measured: the same or not, or for numbers how many times too much."""
    if is_number(said) and is_number(measured):
        share = unit == "%" and 0 < said < 1 <= measured
        meant = f" (did you mean {shown(100 * said, unit)}?)" if share else ""
        beside = f"you said {shown(said)}, it is {shown(measured, unit)}"
        return f"{beside}: {missed_by(said, measured)}{meant}"
    so = "and so it is" if alike(said, measured) else f"but it is {shown(measured, unit)}"
    return f"you said {shown(said, unit)}, {so}"


def alike(said, measured) -> bool:
    """Whether two answers are the same, words by their letters and digits: '(B)' is 'b'."""
    if not isinstance(measured, str) or not isinstance(said, str | int):
        return said == measured
    one, other = (re.sub(r"[\W_]", "", str(each).lower()) for each in (said, measured))
    return one == other != "" or said == measured


def missed_by(said, measured) -> str:
    """By how much a guessed number misses the measured one, in words."""
    if said == measured:
        return "exactly"
    if said * measured < 0:
        return "the sign is wrong"
    if not (math.isfinite(said) and math.isfinite(measured)) or said == 0 or measured == 0:
        return f"too {'much' if said > measured else 'little'}"
    ratio = max(said / measured, measured / said)
    if ratio <= 1.05:
        return "within 5 %"
    times = f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"
    return f"{times} times too {'much' if abs(said) > abs(measured) else 'little'}"


def is_number(value) -> bool:
    """Whether a plain value is a number; True and False are answers to yes-or-no questions."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value, unit: str = "") -> str:
    """A value for a sentence: numbers to four figures, with their unit; anything else as Python."""
    if not is_number(value):
        return repr(value)
    return (f"{value:,}" if isinstance(value, int) else f"{value:.4g}") + f" {unit}".rstrip()


def progress() -> Text:
    """What is done and what is open, notebook by notebook, and how the predictions went."""
    entries = ledger(location()).entries()
    lines = exercise_lines(entries["exercises"]) + prediction_lines(entries["predictions"])
    return Text("\n".join(lines))


def exercise_lines(records: dict) -> list[str]:
    """One line per notebook: how many of its exercises are done, which, and which are open."""
    lines = [f"{'notebook':22}  done  exercises"]
    for book, exercises in groupby(catalogue(), key=lambda item: item[0]):
        names = [exercise.name for _, exercise in exercises]
        done = [name for name in names if records.get(name, {}).get("right")]
        parts = {"done": done, "open": [name for name in names if name not in done]}
        what = "; ".join(f"{word}: {', '.join(some)}" for word, some in parts.items() if some)
        lines.append(f"{book:22}  {len(done)}/{len(names)}   {what}")
    return lines


def prediction_lines(records: dict) -> list[str]:
    """Two lines per prediction: the question, and the guess beside what was measured."""
    lines = ["", "predictions" if records else "no predictions yet"]
    for question, record in records.items():
        said, measured = record["said"], record["measured"]
        known = measured is not None
        so = compared(said, measured, record["unit"]) if known else f"you said {shown(said)}"
        lines += [f"  {question}", f"    {so}{'' if known else ', not yet compared'}"]
    return lines


def export(path, name: str = "") -> Path:
    """Copy the learner's ledger to `path`: JSON, or the overview where the name ends in .txt.

    Who made it stands in the JSON only if a `name` is given.  An earlier copy is replaced.  Raises
    FileExistsError for any other file.
    """
    path = Path(path).expanduser()
    entries = ledger(location()).entries() | ({"name": str(name)} if name else {})
    text = progress() if path.suffix == ".txt" else json.dumps(entries, indent=1)
    if path.exists() and not is_copy(path):
        raise FileExistsError(f"{path} is there already and no copy of a ledger: name another file")
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def is_copy(path: Path) -> bool:
    """Whether a file is what `export` has written."""
    text, overview = path.read_bytes(), exercise_lines({})[0].encode()
    with suppress(ValueError, RecursionError):
        return text.startswith(overview) if path.suffix == ".txt" else bool(parsed(text))
    return False
