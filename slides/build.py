"""Make the slides: each figure by the package, then HTML and PDF by Marp.  `make slides`.

`python slides/build.py` makes all of them in slides/build; `python slides/build.py NAME ...` only
these decks.  No network is needed once Marp is installed.
"""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import figures  # noqa: E402  beside this file, as the next two; it draws as soon as it is asked
import figures_cut  # noqa: E402
import figures_scale  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
MARP = HERE / "node_modules" / ".bin" / "marp"
FIGURE = re.compile(r"(!\[[^\]]*)\]\(figures/(\w+)\.svg\)")
MODULES = figures, figures_cut, figures_scale


def decks() -> list[Path]:
    """The Markdown of every deck."""
    return sorted(HERE.glob("part_*.md"))


def figures_of(deck: Path) -> list[str]:
    """The names of the figures that a deck shows."""
    return list(dict.fromkeys(name for _, name in FIGURE.findall(deck.read_text("utf-8"))))


def function_of(name: str):
    """The function that draws a figure.  Raises LookupError if there is none."""
    for module in MODULES:
        if found := vars(module).get(name):
            return found
    raise LookupError(f"no function draws figures/{name}.svg")


def draw(name: str, folder: Path):
    """Make one figure, `folder`/NAME.svg, by the function of its name."""
    drawn = function_of(name)()
    drawn = list(drawn.values()) if isinstance(drawn, dict) else drawn
    first = drawn if hasattr(drawn, "figure") else drawn[0]  # axes, or several of one figure
    first.figure.savefig(folder / f"{name}.svg", bbox_inches="tight")
    plt.close("all")


def with_texts(markdown: str) -> str:
    """A deck whose images have a text for those who do not see them: what their function says."""
    return FIGURE.sub(_with_text, markdown)


def _with_text(image):
    said = inspect.getdoc(function_of(image[2])).split("\n\n")[0].replace("\n", " ")
    return f"{image[1]} {said}](figures/{image[2]}.svg)"


def convert(deck: Path, folder: Path, *options):
    """Turn a deck, its figures and the theme into one file in `folder`, as Marp's options say."""
    (folder / deck.name).write_text(with_texts(deck.read_text("utf-8")), "utf-8")
    always = [
        "--no-stdin",
        "--allow-local-files",
        "--theme-set",
        str((HERE / "theme.css").resolve()),
    ]
    subprocess.run([MARP.resolve(), deck.name, *options, *always], cwd=folder, check=True)


def build(folder: Path, names=(), kinds=(["--html"], ["--html", "--pdf"])):
    """Make the decks with these names, or all of them, in `folder`: a file for each of `kinds`."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for deck in decks():
        if names and deck.stem not in names:
            continue
        for number, name in enumerate(figures_of(deck), 1):
            print(f"{deck.stem}: figure {number} of {len(figures_of(deck))}, {name}", flush=True)
            draw(name, folder / "figures")
        for options in kinds:
            convert(deck, folder, *options)


if __name__ == "__main__":
    if not MARP.exists():
        sys.exit("Marp is not installed: `make slides` does that, and needs npm.")
    os.environ.setdefault("CHROME_PATH", shutil.which("chromium") or "")
    build(HERE / "build", sys.argv[1:])
