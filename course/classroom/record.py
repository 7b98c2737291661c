"""Measure anew what notebooks show where a world is missing, and record it: `make record`, or
`python -m course.classroom.record NAME ...` for some.

What is measured is what a cell with `measured_or_recorded("NAME", obstacle, measure)` measures: its
notebook is run here, without the cells that it does not need.  Each file is written as soon as its
value is there.
"""

import argparse
import ast
import datetime
import inspect
import json
import os
import sys
import time
from pathlib import Path

import matplotlib as mpl

from course.classroom import provenance, recorded
from course.classroom.recorded import MEASURED, Record, Shown, measured_or_recorded, plain
from course.classroom.slices import builds_on
from course.classroom.workbook import BOOK

ENOUGH_S = 10.0  # after which a measurement is not repeated
QUIET = 1.0  # the highest load of a machine on which nobody else computes


def main(arguments=None) -> int:
    """Record these names, or all; returns how many cannot be measured on this machine."""
    notebooks = sorted((BOOK / "notebooks").glob("[0-9]*.ipynb"))
    calls = {notebook: measured_in(code_cells(notebook)) for notebook in notebooks}
    known = [name for found in calls.values() for name in found]
    parser = argparse.ArgumentParser("python -m course.classroom.record", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    names = parser.parse_args(arguments).names or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no notebook measures {unknown[0]!r}, but {', '.join(known)}")
    mpl.use("agg")
    there, missing = here_and_now(), []
    if there["load"] > QUIET:
        print(f"The load is {there['load']}: times recorded now are those of a busy machine.")
    for notebook, found in calls.items():
        if wanted := {name: number for name, number in found.items() if name in names}:
            missing += record(notebook, wanted, there)
    return len(missing)


def code_cells(notebook: Path) -> list[str]:
    """The sources of a notebook's code cells."""
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def measured_in(cells: list[str]) -> dict[str, int]:
    """The names under which these cells measure something, each with the cell's number."""
    found = {}
    for number, source in enumerate(cells):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "measured_or_recorded":
                found[ast.literal_eval(node.args[0])] = number
    return found


def here_and_now() -> dict:
    """The fields of a Record that say where and when something is measured from now on."""
    return {"machine": provenance.machine(), "versions": provenance.versions(),
            "date": str(datetime.date.today()), "load": round(os.getloadavg()[0], 2)}  # fmt: skip


def record(notebook: Path, calls: dict[str, int], there: dict) -> list[str]:
    """Measure what these cells of a notebook measure and write it down, as what was `there`, in a
    file for each name.  Returns the names that cannot be measured on this machine."""
    missing = []

    def measured_and_kept(name, obstacle, measure) -> Shown:
        if obstacle and name in calls:
            print(f"{name}.json stays as it is.")
            missing.append(name)
        if obstacle or name not in calls:
            return measured_or_recorded(name, obstacle, measure)
        print(f"measuring {name} ...", flush=True)
        value, command = quickest(measure), f"python -m course.classroom.record {name}"
        kept = Record(what=inspect.getdoc(measure), command=command, value=value, **there)
        kept.save(recorded.RECORDS / f"{name}.json")
        return Shown(value, MEASURED)

    run_cells(notebook, calls.values(), measured_or_recorded=measured_and_kept)
    return missing


def run_cells(notebook: Path, numbers, **instead) -> dict:
    """Run these code cells of a notebook and those that they build on, with some names bound to
    something else than what the notebook imports; returns what it holds after that."""
    cells, space = code_cells(notebook), {"__name__": "__main__"}
    for number in builds_on(cells, set(numbers)):
        exec(compile(cells[number], f"{notebook.stem}, code cell {number}", "exec"), space)
        space |= instead
    return space


def quickest(measure):
    """What `measure()` returned in the quickest of its runs in ENOUGH_S, of at least one."""
    spans, values = [], []
    while sum(spans) < ENOUGH_S:
        start = time.perf_counter()
        values.append(plain(measure()))
        spans.append(time.perf_counter() - start)
    return values[spans.index(min(spans))]


if __name__ == "__main__":
    sys.exit(main())
