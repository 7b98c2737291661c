"""Which cells of a notebook another cell builds on: what it binds, and what it looks up."""

import dis
from types import CodeType


def builds_on(cells: list[str], asked: set[int]) -> list[int]:
    """The numbers of the code cells `asked` for and of those that they build on, in their order.

    The first cell, with imports and seeds, is always there.  A cell is not found if all it does is
    to change what another has bound.
    """
    bound, at_once, later = zip(*map(names, cells))
    everywhere, before = set(), None
    while everywhere != before:  # what a function looks up may be bound below it
        before, wanted, chosen = set(everywhere), set(), {0, *asked}
        for number in range(max(asked), -1, -1):
            if number in chosen or bound[number] & (wanted | before):
                chosen.add(number)
                wanted = wanted - bound[number] | at_once[number]
                everywhere |= later[number] - bound[number]
    return sorted(chosen)


def names(source: str) -> tuple[set, set, set]:
    """The names that a cell binds, those that it looks up before that, and those that its functions
    look up when they are called."""
    bound, at_once, code = set(), set(), compile(source, "cell", "exec")
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            bound.add(step.argval)
        elif step.opname == "LOAD_NAME" and step.argval not in bound:
            at_once.add(step.argval)
    steps = (step for inner in _inside(code) for step in dis.get_instructions(inner))
    return bound, at_once, {s.argval for s in steps if s.opname in ("LOAD_GLOBAL", "LOAD_NAME")}


def _inside(code):
    """The code of all functions and comprehensions in a piece of code."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _inside(inner)
