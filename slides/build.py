"""Make the slides: each figure by the package, then HTML and PDF by Marp.  `make slides`.

`python slides/build.py` makes all of them in slides/build; `python slides/build.py NAME ...` only
these decks.  No network is needed once Marp is installed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import figures  # noqa: E402  beside this file; it draws as soon as it is asked
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
MARP = HERE / "node_modules" / ".bin" / "marp"
FIGURE = re.compile(r"figures/(\w+)\.svg")


def decks() -> list[Path]:
    """The Markdown of every deck."""
    return sorted(HERE.glob("part_*.md"))


def figures_of(deck: Path) -> list[str]:
    """The names of the figures that a deck shows."""
    return list(dict.fromkeys(FIGURE.findall(deck.read_text("utf-8"))))


def draw(name: str, folder: Path):
    """Make one figure, `folder`/NAME.svg, by the function of its name."""
    getattr(figures, name)().savefig(folder / f"{name}.svg", bbox_inches="tight")
    plt.close("all")


def convert(deck: Path, folder: Path, *options):
    """Turn a deck, its figures and the theme into one file in `folder`, as Marp's options say."""
    shutil.copy(deck, folder)
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
