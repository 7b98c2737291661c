"""Draw a layer whose halo is waited for, before its interior is computed or after it."""

from course.classroom.timeline import Piece, lanes

PARTS = "fetch", "interior", "fetch", "border"


def pieces(moments) -> list[Piece]:
    """What a rank did between the five moments (s) of a layer, in ms."""
    ms = [1e3 * (each - moments[0]) for each in moments]
    return [Piece(*each) for each in zip(PARTS, ms, ms[1:], strict=False)]


def waited_ms(row) -> float:
    """How long a rank has waited for its halo."""
    return sum(piece.end - piece.start for piece in row if piece.what == "fetch")


def said_of(rows) -> str:
    """What two rows {name: pieces} show, of which the second has its interior first."""
    waits, left = (waited_ms(row) for row in rows.values())
    if left > waits / 2:
        return "other work has disturbed these times, and they show nothing"
    return f"of {waits:.0f} ms of waiting for the halo, {left:.0f} ms are left"


def draw(rows, title, how):
    """A lane for each of `rows` {name: pieces}; `how` the times were found.  Returns the axes."""
    return lanes(rows, title, f"time (ms), {how}")
