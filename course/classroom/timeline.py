"""Draw what works at the same time: a lane for each worker, a bar for each piece of its work."""

import math
from typing import NamedTuple

from matplotlib.patches import Patch

from course.classroom.figures import COLOURS, named, panels

WIDTH, LANE, LETTERS = 9.2, 0.42, 6.5  # inches; inches of height; points that a letter needs
TEXT_POINTS = 8
HATCHES = ("", "///", "\\\\\\", "xxx", "...", "---", "|||")  # of the kinds of work, in their order


class Piece(NamedTuple):
    """A piece of work of the kind `what`, from `start` to `end`, with a `text` on its bar."""

    what: str
    start: float
    end: float
    text: str = ""


def calls_beside(trace, rank, what, start=0.0, end=math.inf, unit_s=1.0) -> list[Piece]:
    """The calls that `rank` of a run did beside its own work between the seconds `start` and `end`,
    each with its number; times in units of `unit_s`, counted from `start`."""
    calls = [e for e in trace.events if e.rank == rank and e.peer < 0 and e.background]
    inside = sorted((e.start, e.end) for e in calls if start <= e.start and e.end <= end)
    spans = [[(moment - start) / unit_s for moment in span] for span in inside]
    return [Piece(what, *span, str(number)) for number, span in enumerate(spans, 1)]


def lanes(rows, title, x, axes=None, *, alike=True):
    """A lane for each of `rows` {label: [Piece]}, one below the other, a colour and a hatch for
    each kind of work.  A bar too narrow for its text has none, nor, if texts are `alike`, one too
    narrow for the longest text of its lane.  Returns the axes."""
    axes = axes or panels(1, width=WIDTH, height=1.3 + LANE * len(rows))[0]
    kinds = list(dict.fromkeys(piece.what for row in rows.values() for piece in row))
    drawn = dict(zip(kinds, zip(COLOURS, HATCHES, strict=True), strict=False))
    end = max(piece.end for row in rows.values() for piece in row)
    letter = LETTERS / (72 * axes.figure.get_figwidth() * 0.7) * end
    for y, row in enumerate(rows.values()):
        lengths = [max(map(len, piece.text.splitlines()), default=0) for piece in row]
        for (what, start, stop, text), length in zip(row, lengths, strict=True):
            colour, hatch = drawn[what]
            axes.barh(y, stop - start, 0.72, start, color=colour, hatch=hatch, ec="white", lw=0.7)
            if letter * (max(lengths) if alike else length) < stop - start:
                looks = {"bbox": {"fc": colour, "ec": "none", "pad": 0.5}, "color": "white"}
                looks |= {"ha": "center", "va": "center", "fontsize": TEXT_POINTS}
                axes.text((start + stop) / 2, y, text, **looks)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xlim(0, end * 1.01)
    named(axes, title, x, "").invert_yaxis()
    keys = [Patch(fc=fc, hatch=hatch, ec="w", label=what) for what, (fc, hatch) in drawn.items()]
    axes.legend(handles=keys, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return axes
