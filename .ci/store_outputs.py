"""Run the original notebooks and store their outputs: `make notebooks`, all or those in ARGS.

Each runs in its own folder with a ledger of its own, as in the tests.  What differs from run to run
without being output (times of execution, ids of widgets) is not stored, nor whose machine it was.
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError

from course.classroom.workbook import KERNEL

CELL_TIMEOUT_S = 600
WIDGET = "application/vnd.jupyter.widget-view+json"


def run(path: Path):
    """The notebook at `path` with fresh outputs.  Raises where a cell fails or takes too long."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        coalesce_streams=True,
    )
    with tempfile.TemporaryDirectory() as ledgers:
        os.environ["COURSE_PROGRESS"] = f"{ledgers}/progress.json"
        client.execute()
    quoted = {key: notebook.metadata[key] for key in ("quoted",) if key in notebook.metadata}
    notebook.metadata = quoted | {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    return nbformat.from_dict(anybodys(notebook, ledgers))


def anybodys(notebook, ledgers: str) -> dict:
    """The notebook as if it had run in the home of a learner, with a ledger in its usual place."""
    text = json.dumps(notebook)
    text = text.replace(ledgers, "/home/learner/.local/share/course")
    text = re.sub(rf"{re.escape(str(Path.home()))}\b", "/home/learner", text)
    return json.loads(re.sub(r"/ipykernel_\d+/\d+\.py", "/ipykernel_1/1.py", text))


def store(notebook, path: Path):
    """Write the whole file beside the old one, then swap."""
    beside = path.with_name(path.name + ".new")
    nbformat.write(notebook, beside)
    os.replace(beside, path)


def main(names: list[str]) -> int:
    paths = [Path(name) for name in names] or sorted(Path("notebooks").glob("[0-9]*.ipynb"))
    failed = 0
    for number, path in enumerate(paths, 1):
        print(f"[{number}/{len(paths)}] {path}", flush=True)
        try:
            store(run(path), path)
        except (CellControlSignal, DeadKernelError) as trouble:
            failed += 1
            print(f"{path} is as it was, it did not run through:\n{trouble}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
