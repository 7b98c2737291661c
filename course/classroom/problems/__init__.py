"""The exercises of the book, one file per notebook: pNN_name.py belongs to notebook NN_name.

Each file ends in a list `EXERCISES`; `catalogue()` finds them, so that nobody keeps a second list.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple


class Wrong(Exception):
    """An answer is wrong: one sentence that names the mistake."""


class Exercise(NamedTuple):
    """A task, the check of its answer, up to three hints, and what `solution` shows.

    `check(answer)` raises Wrong, or returns a sentence about the right answer, or None.  `solution`
    is a function (its source is shown), several functions, or a text.  `given` is the code that
    the learner starts from where that is more than an empty function: unchanged, it is a stub.
    """

    name: str
    task: str
    check: Callable[[Any], str | None]
    hints: tuple[str, ...]
    solution: Callable | tuple[Callable, ...] | str
    given: Callable | None = None


def catalogue() -> Iterator[tuple[str, Exercise]]:
    """All exercises in the book's order, each with the name of its notebook (09_collectives)."""
    for module in sorted(iter_modules(__path__), key=lambda module: module.name):
        for exercise in import_module(f"{__name__}.{module.name}").EXERCISES:
            yield module.name.removeprefix("p"), exercise
