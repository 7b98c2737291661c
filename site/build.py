"""Make the site: every notebook as a page, with the outputs that are stored in it.  `make site`.

`python site/build.py` makes it in site/build; `python site/build.py FOLDER` elsewhere.  Nothing is
executed, and neither the making nor the reading needs a network.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import reading  # beside this file
from sphinx.cmd.build import main as sphinx

from course.classroom.book_map import PARTS, notebooks

HERE = Path(__file__).parent
ORIGINALS = HERE.parent / "notebooks"
TOCTREE = "```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def build(folder: Path) -> int:
    """Make the site in `folder`; returns Sphinx's exit status."""
    with tempfile.TemporaryDirectory() as own:
        source, made = Path(own, "source"), Path(own, "site")
        write_pages(source)
        strict = ["--quiet", "--fail-on-warning", "--keep-going"]
        where = ["--conf-dir", str(HERE), "--doctree-dir", f"{own}/doctrees", str(source)]
        status = sphinx(["--builder", "html", *strict, *where, str(made)])
        shutil.copytree(made, folder, dirs_exist_ok=True)  # made has neighbours that no page shows
    return status


def write_pages(source: Path):
    """The notebooks as they are read, and the front page, for Sphinx to find in `source`."""
    source.mkdir()
    for original in sorted(ORIGINALS.glob("*.ipynb")):
        page = reading.as_read(json.loads(original.read_text("utf-8")))
        text = json.dumps(reading.placed(page, original.name))
        (source / original.name).write_text(text, "utf-8")
    front = (HERE / "index.md").read_text("utf-8")
    (source / "index.md").write_text(front + contents(), "utf-8")


def contents() -> str:
    """The book's parts: a table of questions for the front page, and the menu beside all pages."""
    texts = []
    for numeral, part in zip(reading.PARTS, PARTS, strict=True):
        own = [each for each in notebooks() if each.part == part]
        texts += [f"## Part {numeral} · {part}\n", *map(row, own), ""]
        pages = "\n".join(f"{n.number:02} {n.name.replace('_', ' ')} <{n.file}>" for n in own)
        texts.append(TOCTREE.format(caption=f"{numeral} · {part}", pages=pages))
    texts.append(TOCTREE.format(caption="To look up", pages="Glossary <glossary>"))
    return "\n".join(texts)


def row(notebook) -> str:
    """A line of the front page's table of contents."""
    core = "" if notebook.core else " *(optional)*"
    return f"* {notebook.number:02} · [{notebook.question}]({notebook.file}){core}"


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if sys.argv[1:] else HERE / "build"))
