"""Hand out the learner's own copy of the notebooks: `python -m course.classroom.workbook`.

`copy_notebooks(originals, workbook)` copies what is not there yet, without outputs and guesses, so
that nothing gives an answer away.  A file that is there belongs to the learner and is never
touched; the report says where a newer original exists.
"""

import argparse
import ast
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

BOOK = Path(__file__).parents[2]
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
GUESS = "prediction"  # the tag of a cell whose values are the learner's to say
LEFT_BEHIND = ("ExecuteTime", "collapsed", "execution", "scrolled", "trusted")


class Report(NamedTuple):
    """File names by what became of them; `unknown` are files that are no copies of ours."""

    copied: list[str]
    kept: list[str]
    newer: list[str]
    unknown: list[str]


def copy_notebooks(originals: Path, workbook: Path) -> Report:
    """Copy every notebook in `originals` that `workbook` lacks, each whole or not at all.

    Raises ValueError where `originals` holds no notebook or one that cannot be read.
    """
    sources = sorted(originals.glob("*.ipynb"))
    if not sources:
        raise ValueError(f"there is no notebook in {originals}")
    workbook.mkdir(parents=True, exist_ok=True)
    report = Report([], [], [], [])
    for source in sources:
        fresh, copy = handed_out(source), workbook / source.name
        is_new = write_new(copy, json.dumps(fresh, indent=1, ensure_ascii=False) + "\n")
        part = report.copied if is_new else getattr(report, standing(copy, fresh))
        part.append(source.name)
    return report


def standing(copy: Path, fresh: dict) -> str:
    """How a file that was there stands to the notebook handed out today, as a field of Report."""
    try:
        handed_out_then = json.loads(copy.read_bytes())["metadata"]["course"]["original"]
    except (OSError, ValueError, LookupError, TypeError):
        return "unknown"
    return "kept" if handed_out_then == fresh["metadata"]["course"]["original"] else "newer"


def handed_out(original: Path) -> dict:
    """A notebook as a learner gets it, with a mark by which a later original is told from it.

    The mark is over what the learner reads: running a notebook again makes no newer original.
    """
    try:
        notebook = json.loads(original.read_bytes())
        notebook["cells"] = [cleared(cell) for cell in notebook["cells"]]
    except (ValueError, LookupError, TypeError, SyntaxError) as trouble:
        raise ValueError(f"{original.name} cannot be handed out: {trouble}") from trouble
    to_read = [[cell["cell_type"], cell["source"], cell["metadata"]] for cell in notebook["cells"]]
    mark = hashlib.sha256(json.dumps(to_read, sort_keys=True).encode()).hexdigest()
    notebook["metadata"] = {"course": {"original": mark}, "kernelspec": KERNEL}
    return notebook


def cleared(cell: dict) -> dict:
    """A cell without what running it left behind and, if it is code, without guesses."""
    metadata = {key: value for key, value in cell["metadata"].items() if key not in LEFT_BEHIND}
    source = "".join(cell["source"])
    if cell["cell_type"] == "code":
        source = without_guesses(source, GUESS in metadata.get("tags", []))
        cell = cell | {"execution_count": None, "outputs": []}
    return cell | {"metadata": metadata, "source": source.splitlines(True)}


def without_guesses(code: str, everything=False) -> str:
    """Code in which predict(question, value) has `...` for its value.

    With `everything`, what is assigned to a name becomes `...` too.
    """
    if not everything and "predict(" not in code:
        return code
    tree = ast.parse(code)
    values = [value for node in ast.walk(tree) for value in guesses(node)]
    if everything and not values:
        values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return dotted(code, values)


def guesses(node: ast.AST) -> list[ast.expr]:
    """The value in a call of predict, nothing for any other node."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).split(".")[-1] != "predict":
        return []
    return node.args[1:2] + [word.value for word in node.keywords if word.arg == "value"]


def dotted(code: str, values: list[ast.expr]) -> str:
    """Code with `...` in place of these expressions; ast counts columns in bytes."""
    lines = code.encode().splitlines(True)
    for value in sorted(values, key=lambda value: (value.lineno, value.col_offset), reverse=True):
        first, last = value.lineno - 1, value.end_lineno - 1
        joined = lines[first][: value.col_offset] + b"..." + lines[last][value.end_col_offset :]
        lines[first : last + 1] = [joined]
    return b"".join(lines).decode()


def write_new(path: Path, text: str) -> bool:
    """Write a file whole, unless there is one; returns whether it was written."""
    if os.path.lexists(path):
        return False
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return claim(path, beside)
    finally:
        beside.unlink(missing_ok=True)


def claim(path: Path, written: Path) -> bool:
    """Give a written file its name, unless the name is taken; returns whether it was free."""
    try:
        try:
            os.link(written, path)
        except OSError:  # taken, or no hard links here: claim the name, then fill it
            open(path, "x").close()
            os.replace(written, path)
    except FileExistsError:
        return False
    return True


def told(report: Report, workbook: Path) -> str:
    """A report in sentences."""
    lines = [f"{workbook}: {len(report.copied)} new, {len(report.kept)} as they were"]
    lines += [
        f"  {name}: a newer original exists; rename yours and run `make lab` again to get it"
        for name in report.newer
    ]
    lines += [f"  {name}: no copy of the book's notebook, left alone" for name in report.unknown]
    return "\n".join(lines)


def main(arguments: list[str]):
    purpose = "Make the learner's own copy of the notebooks; no file is ever overwritten."
    parser = argparse.ArgumentParser("python -m course.classroom.workbook", description=purpose)
    parser.add_argument("workbook", nargs="?", type=Path, default=BOOK / "workbook")
    parser.add_argument("--originals", type=Path, default=BOOK / "notebooks")
    chosen = parser.parse_args(arguments)
    try:
        print(told(copy_notebooks(chosen.originals, chosen.workbook), chosen.workbook))
    except (OSError, ValueError) as trouble:
        sys.exit(f"no workbook was made: {trouble}")


if __name__ == "__main__":
    main(sys.argv[1:])
