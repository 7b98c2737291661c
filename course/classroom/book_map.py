"""The book as data and as a picture: 28 notebooks, each one question, in four parts.

`notebooks()` lists them, `draw()` shows them with the core path.
"""

from typing import NamedTuple

from matplotlib.patches import FancyBboxPatch, Patch

from course.classroom.figures import named, panels

PARTS = {
    "Learning": (
        ("start_here", "Is this machine ready, and how does this book work?"),
        ("gradient_descent", "How does a machine learn a number, and when does it blow up?"),
        ("networks", "How does a network learn?"),
        ("features", "Why are pixels such a bad place to learn?"),
        ("sparse_coding", "What are pictures made of?"),
        ("autoencoders", "Can a network guess its own sparse code in one pass?"),
        ("convolution", "Why is a convolution a matrix product, and what else can it be?"),
        ("nine_layers", "What does a neuron respond to, when nobody named the classes?"),
    ),
    "Communicating": (
        ("network_bottleneck", "When is the network slower than the arithmetic?"),
        ("collectives", "How do four processes agree on a sum?"),
        ("all_reduce", "What is the cheapest way to add p vectors?"),
        ("topologies", "Must everyone talk to everyone?"),
    ),
    "Training on many": (
        ("data_parallel", "Is it the same gradient?"),
        ("large_batches", "How big may a batch be?"),
        ("parameter_server", "What does a stale gradient cost?"),
        ("elastic_averaging", "Why pull the workers together softly?"),
        ("model_parallel", "What must cross when a network is cut?"),
        ("spatial_parallel", "How do you convolve an image that no GPU holds?"),
        ("pipeline", "How much of the time is a stage idle?"),
        ("sharded", "Why should every rank keep what it does not use?"),
        ("hybrids", "Can one network be cut two ways?"),
        ("experts", "Must every neuron see every example?"),
    ),
    "Scale": (
        ("scaling", "How far does it go?"),
        ("clusters", "Which machine would you buy?"),
        ("frameworks", "What do the real frameworks do for you?"),
        ("failure", "What if a node dies on day three?"),
        ("data_engine", "Given a predictor, which data should come next?"),
        ("capstone", "Plan and run your own"),
    ),
}
CORE = (0, 1, 2, 4, 7, 8, 9, 10, 12, 13, 16, 18, 22)

BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, LINE_HEIGHT = 0.92, 0.62, 1.05, 0.14  # in steps between boxes
EDGE = "0.2"
FACES = {"core path": "#CFE6F5", "optional": "white"}


class Notebook(NamedTuple):
    """One question of the book; `core` lies on the core path."""

    number: int
    part: str
    name: str
    question: str
    core: bool

    @property
    def file(self) -> str:
        return f"{self.number:02}_{self.name}.ipynb"


def notebooks() -> list[Notebook]:
    """All notebooks, in the book's order."""
    rows = [(part, *row) for part, rows in PARTS.items() for row in rows]
    return [
        Notebook(number, part, name, question, number in CORE)
        for number, (part, name, question) in enumerate(rows)
    ]


def draw():
    """The map: a row of boxes per part, and what their looks say. Returns its axes."""
    axes, book = panels(1, width=12, height=5.4)[0], notebooks()
    for row, (part, numeral) in enumerate(zip(PARTS, ("I", "II", "III", "IV"), strict=True)):
        y = row * ROW_HEIGHT
        axes.text(0, y - 0.08, f"Part {numeral} · {part}", fontsize=11)
        for x, notebook in enumerate(each for each in book if each.part == part):
            box(axes, x, y, notebook)
    title = f"{sum(each.core for each in book)} of {len(book)} notebooks make the core path"
    named(axes, title, "", "").set_axis_off()
    axes.set(xlim=(-0.02, 10), ylim=(len(PARTS) * ROW_HEIGHT, -0.4))
    handles = [Patch(facecolor=face, edgecolor=EDGE, label=label) for label, face in FACES.items()]
    axes.legend(handles=handles, ncols=2, frameon=False, loc="lower right", fontsize=9)
    return axes


def box(axes, x, y, notebook):
    """One notebook's number and name in a box, at column `x` and height `y` (downwards)."""
    face = FACES["core path" if notebook.core else "optional"]
    looks = {"boxstyle": "round,pad=0,rounding_size=0.06", "facecolor": face, "edgecolor": EDGE}
    axes.add_patch(FancyBboxPatch((x, y), BOX_WIDTH, BOX_HEIGHT, **looks))
    middle, text = x + BOX_WIDTH / 2, {"ha": "center"}
    axes.text(middle, y + 0.21, f"{notebook.number:02}", weight="bold", **text)
    for row, word in enumerate(notebook.name.split("_")):
        axes.text(middle, y + 0.38 + row * LINE_HEIGHT, word, fontsize=8.5, **text)
