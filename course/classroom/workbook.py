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
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

BOOK = Path(__file__).parents[2]
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
GUESS = "prediction"  # the tag of a cell whose values are the learner's to say
COMMAND = re.compile(r"^([ \t]*)[%!](?!.*predict\().*$", re.MULTILINE)  # of IPython
LEFT_BEHIND = ("ExecuteTime", "collapsed", "execution", "scrolled", "trusted")


class Report(NamedTuple):
    """File names by what became of them; `unknown` are files that are no copies of ours, `broken`
    sentences about originals that cannot be handed out."""

    copied: list[str]
    kept: list[str]
    newer: list[str]
    unknown: list[str]
    broken: list[str]


def copy_notebooks(originals: Path, workbook: Path) -> Report:
    """Copy every notebook in `originals` that `workbook` lacks, each whole or not at all.

    Raises ValueError where `originals` holds no notebook.
    """
    sources = sorted(originals.glob("*.ipynb"))
    if not sources:
        raise ValueError(f"there is no notebook in {originals}")
    workbook.mkdir(parents=True, exist_ok=True)
    report = Report(*([] for _ in Report._fields))
    for source in sources:
        try:
            fresh, copy = handed_out(source), workbook / source.name
        except ValueError as trouble:
            report.broken.append(str(trouble))
            continue
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
        json.dumps(notebook, ensure_ascii=False).encode()  # half a character cannot be written
    except (OSError, ValueError, LookupError, TypeError, SyntaxError, RecursionError) as trouble:
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

    With `everything`, what is assigned to a name becomes `...` too.  Raises SyntaxError for code
    that is no Python, commands of IPython on lines of their own set apart.
    """
    if not everything and "predict(" not in code:
        return code
    tree = ast.parse(COMMAND.sub(r"\1pass", code))
    values = [value for node in ast.walk(tree) for value in guesses(node)]
    if everything and not values:
        values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return dotted(code, outermost(values))


def outermost(values: list[ast.expr]) -> list[ast.expr]:
    """Those that are no parts of others."""
    inner = {id(part) for value in values for part in ast.walk(value) if part is not value}
    return [value for value in values if id(value) not in inner]


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
    """Write a file whole, for its owner alone, unless there is one; returns whether it was."""
    if os.path.lexists(path):
        return False
    number, beside = tempfile.mkstemp(".new", f".{path.name}.", path.parent)
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(number)
        return claim(path, Path(beside))
    finally:
        Path(beside).unlink(missing_ok=True)


def claim(path: Path, written: Path) -> bool:
    """Give a written file its name, unless the name is taken; returns whether it was free."""
    try:
        os.link(written, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: claim the name, then fill it
        return fill(path, written)
    return True


def fill(path: Path, written: Path) -> bool:
    """Claim a name with an empty file, which does not stay if it cannot be filled."""
    try:
        open(path, "x").close()
        os.replace(written, path)
    except FileExistsError:
        return False
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def told(report: Report, workbook: Path) -> str:
    """A report in sentences."""
    lines = [f"{workbook}: {len(report.copied)} new, {len(report.kept)} as they were"]
    lines += [
        f"  {name}: a newer original exists; rename yours and run `make lab` again to get it"
        for name in report.newer
    ]
    lines += [f"  {name}: no copy of the book's notebook, left alone" for name in report.unknown]
    lines += [f"  {trouble}" for trouble in report.broken]
    return "\n".join(lines)


def main(arguments: list[str]):
    """The command line: copy the notebooks, tell what was done."""
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
