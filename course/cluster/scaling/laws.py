"""How far can it go?  Two answers of one number each, and the number that fits a measured curve.

    Amdahl: the work stays, a part `s` of it does not divide:   speed-up 1 / (s + (1 - s) / p)
    Gustafson: the work grows with p, but for a part `s`:       speed-up s + p (1 - s)

Sources: Amdahl 1967; Gustafson 1988.
"""

import math
from typing import NamedTuple


class Law(NamedTuple):
    """`name` with its `serial` part s, between 0 and 1."""

    name: str
    serial: float

    def speedup(self, p: float) -> float:
        """What `p` ranks are worth."""
        if self.name == "Amdahl":
            return 1 / (self.serial + (1 - self.serial) / p)
        return self.serial + p * (1 - self.serial)


def amdahl(speedups: dict) -> Law:
    """The law of strong scaling that fits {ranks: speed-up} best.

    1 / speed-up = 1 / p + s (1 - 1 / p) is linear in s: least squares of these.
    Raises ValueError where no curve has more than one rank, or a speed-up cannot be.
    """
    return Law("Amdahl", _fitted((1 - 1 / p, 1 / up - 1 / p) for p, up in _checked(speedups)))


def gustafson(speedups: dict) -> Law:
    """The law of weak scaling that fits {ranks: scaled speed-up} best.

    p - speed-up = s (p - 1) is linear in s: least squares of these.
    Raises ValueError where no curve has more than one rank, or a speed-up cannot be.
    """
    return Law("Gustafson", _fitted((p - 1, p - up) for p, up in _checked(speedups)))


def _checked(speedups):
    for p, up in speedups.items():
        if not (p >= 1 and 0 < up < math.inf):
            raise ValueError(f"a speed-up is above 0, not {up} on {p} ranks")
    return speedups.items()


def _fitted(points) -> float:
    """The slope of a line through 0, between 0 and 1."""
    points = list(points)
    squares = sum(x * x for x, _ in points)
    if not squares:
        raise ValueError("a law is fitted to speed-ups of more than one rank")
    return min(1.0, max(0.0, sum(x * y for x, y in points) / squares))
