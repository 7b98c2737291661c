"""A notebook for somebody who reads and cannot run it: `as_read(notebook)` changes what would say
nothing on a page.

A slider's text goes, as the film strip below it shows the same.  The answer to a prediction,
what draws figures only, hints and solutions are folded.  Stubs say what their check asks for.
"""

import copy
import html
import re

import ipywidgets
from nbformat.v4 import new_markdown_cell

from course.classroom.book_map import notebooks
from course.classroom.exercises import (
    FILL_IN,
    NO_GUESS,
    NOT_DONE,
    NOT_PREDICTED,
    find,
    solution,
)
from course.classroom.problems import catalogue

PARTS = ("I", "II", "III", "IV")
FOR_LINTERS = re.compile(r"  # (noqa|fmt)\b.*")
WIDGET = re.compile(r"(\w+)\(")
NAME = re.compile(r"""["'](\w+)["']""")
TO_DO = f"{NOT_DONE}: "
FOLDED = {  # by myst-nb's tag: what is said before a fold is opened, and after
    "hide-input": ("The code behind this, which needs no reading", "Hide the code"),
    "hide-output": ("Say what you expect, then see the answer", "Hide the answer"),
}


def as_read(notebook: dict) -> dict:
    """A copy of a notebook for the site; its outputs are those that were stored."""
    page = copy.deepcopy(notebook)
    for cell in page["cells"]:
        if cell["cell_type"] == "code":
            cell["source"] = FOR_LINTERS.sub("", "".join(cell["source"]))
            cell["outputs"] = [shown(each) for each in cell["outputs"] if not is_widget(each)]
            fold(cell)
    page["cells"] = [part for cell in page["cells"] for part in (cell, *help_for(cell))]
    return page


def text_of(output: dict) -> str:
    """What an output says in plain text."""
    return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", ""))


def is_widget(output: dict) -> bool:
    """Whether an output is a slider, a menu or a box of them, which only a kernel can show."""
    name = WIDGET.match(text_of(output))
    return output["output_type"] == "display_data" and bool(
        name and hasattr(ipywidgets, name.group(1))
    )


def shown(output: dict) -> dict:
    """An output in the words of a page: a question, its answer, or what a check asks."""
    text = " ".join(text_of(output).split())
    if output["output_type"] == "stream":
        return output | {"text": text_of(output).replace(TO_DO, "the check asks: ")}
    if text.startswith(NO_GUESS):
        question = text.removeprefix(NO_GUESS).removesuffix(FILL_IN).strip()
        return paragraph("asked", "What do you expect?", question)
    if text.startswith(NOT_PREDICTED):
        return paragraph("answer", "Answer:", text.removeprefix(NOT_PREDICTED))
    if text.startswith(TO_DO):
        return paragraph("asked", "The check asks:", text.removeprefix(TO_DO))
    return output


def paragraph(kind: str, head: str, text: str) -> dict:
    """An output that is a paragraph of HTML."""
    body = f'<p class="{kind}"><strong>{head}</strong> {html.escape(text)}</p>'
    return {"output_type": "display_data", "data": {"text/html": body}, "metadata": {}}


def fold(cell: dict):
    """Fold the code that only draws, and the outputs that answer a question."""
    tags = cell["metadata"].setdefault("tags", [])
    answers = any('class="answer"' in str(output.get("data")) for output in cell["outputs"])
    tag = "hide-input" if "harness" in tags else "hide-output" if answers else ""
    if tag:
        tags.append(tag)
        show, hide = FOLDED[tag]
        cell["metadata"]["mystnb"] = {"code_prompt_show": show, "code_prompt_hide": hide}


def help_for(cell: dict) -> list[dict]:
    """The folded hints and solutions of the exercises that a cell checks, as cells of text."""
    source = "".join(cell["source"])
    if cell["cell_type"] != "code" or "check(" not in source:
        return []
    exercises = {exercise.name for _, exercise in catalogue()}
    names = [name for name in dict.fromkeys(NAME.findall(source)) if name in exercises]
    return [new_markdown_cell(helped(name)) for name in names]


def helped(name: str) -> str:
    """Hints and solution of an exercise, each in a fold of its own."""
    exercise, answer = find(name), solution(name)
    count = len(exercise.hints)
    heads = [f"{name}: hint {number} of {count}" for number in range(1, count + 1)]
    folds = [folded(head, said(hint)) for head, hint in zip(heads, exercise.hints, strict=True)]
    last = f"\n\n{answer._repr_markdown_()}\n\n" if answer.is_code else said(answer.text)
    return "\n\n".join([*folds, folded(f"{name}: a solution", last)])


def folded(head: str, body: str) -> str:
    """A fold, closed at first, of a notebook's text."""
    return f"<details><summary>{head}</summary>{body}</details>"


def said(text: str) -> str:
    """A text as it is, where Markdown would see formulas and quotes."""
    return f"<p>{html.escape(text).replace(chr(10), '<br>')}</p>"


def placed(page: dict, file: str) -> dict:
    """The page, with its place in the book said below its title."""
    for each in notebooks():
        if each.file == file:
            part = PARTS[list(dict.fromkeys(n.part for n in notebooks())).index(each.part)]
            path = "core path" if each.core else "optional"
            line = f"Notebook {each.number:02} · Part {part}, {each.part} · {path}"
            title, _, rest = "".join(page["cells"][0]["source"]).partition("\n")
            page["cells"][0]["source"] = f'{title}\n\n<p class="place">{line}</p>\n{rest}'
    return page
