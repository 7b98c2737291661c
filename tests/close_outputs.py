"""A plugin for nbval: outputs are equal if their words are and their numbers are close.

Another BLAS, vector width or number of cores adds up in another order, and the last digit printed
tells.  So a number with a decimal point or an exponent may differ by one unit of its last digit, or
by `CLOSE` of itself; whole numbers may not differ.  A cell's tag says otherwise:

    exact            every character counts
    close=0.02       every number, whole ones too, may differ by 2 %, beside its last digit
"""

import re
from fractions import Fraction

from nbval import plugin

CLOSE = Fraction(1, 10**5)
NUMBER = re.compile(r"(?<![\w.])([-−+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.]*\w)")


def is_close(new: str, stored: str, close=None) -> bool:
    """Whether two numbers, as they are printed, are equal but for rounding."""
    if new == stored:
        return True
    if close is None and not re.search("[.eE]", new + stored):
        return False
    values = [Fraction(each.replace("−", "-")) for each in (new, stored)]
    room = max(_last_digit(new), _last_digit(stored)) if re.search("[.eE]", new + stored) else 0
    return abs(values[0] - values[1]) <= max(room, (close or CLOSE) * abs(values[1]))


def _last_digit(number: str) -> Fraction:
    """What one unit of the last digit of a printed number is worth."""
    digits, _, exponent = number.lower().partition("e")
    return Fraction(10) ** (int(exponent or 0) - len(digits.partition(".")[2]))


def settled(new, stored, close=None):
    """The text `stored` if `new` says the same, else `new`."""
    if not (isinstance(new, str) and isinstance(stored, str)):
        return new
    parts, wanted = NUMBER.split(new), NUMBER.split(stored)
    alike = len(parts) == len(wanted) and all(
        is_close(part, want, close) if number % 2 else part.split() == want.split()
        for number, (part, want) in enumerate(zip(parts, wanted))
    )
    return stored if alike else new


def texts(outputs):
    """(kind, the mapping that holds it, its key) of every text among the outputs of a cell."""
    for output in outputs:
        if "text" in output:
            yield output.get("name"), output, "text"
        for kind in output.get("data", {}):
            yield kind, output["data"], kind


def settle(new, stored, tags=()):
    """Give the outputs `new` of a cell the texts of those that are `stored` and say the same."""
    if "exact" in tags:
        return
    close = next((Fraction(tag[6:]) for tag in tags if tag.startswith("close=")), None)
    by_kind = {}
    for kind, holder, key in texts(stored):
        by_kind.setdefault(kind, []).append(holder[key])
    for kind, holder, key in texts(new):
        if by_kind.get(kind):
            holder[key] = settled(holder[key], by_kind[kind].pop(0), close)


def pytest_configure(config):
    """Let nbval's cells compare so."""
    compare = plugin.IPyNbCell.compare_outputs

    def compare_outputs(cell, test, ref, skip_compare=None):
        settle(test, ref, cell.cell.metadata.get("tags", ()))
        return compare(cell, test, ref, skip_compare)

    plugin.IPyNbCell.compare_outputs = compare_outputs
