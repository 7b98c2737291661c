"""Which line of the learner's was it?  An exception as a short block that a beginner can use.

`told(trouble)` names the learner's line and what went wrong there; when it was on ranks, which
rank it was, and for ranks that wait for one another, what each of them waits in.
"""

import linecache
import re
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

from course.classroom.limits import TimeIsUp
from course.comm import CommMismatch, CommTimeout, PeerLost
from course.worlds import RankError, RunTimeout
from course.worlds.pickling import places

NOT_THE_LEARNERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<frozen",
)
ENDLESS = "your function does not come to an end"
WAITS = re.compile(r"(?:waited .*? in|was in) (.+)$")


class Place(NamedTuple):
    """A line of the learner's own code."""

    file: str
    line: int
    function: str

    def __str__(self):
        cell = "ipykernel" in self.file or self.file.startswith("<")
        where = "your cell" if cell else Path(self.file).name
        source = linecache.getline(self.file, self.line).strip()
        return f"{self.function}, line {self.line} of {where}:  {source}".rstrip(": ")


def told(trouble: BaseException) -> str:
    """What stopped an answer, and at which of the learner's lines."""
    if isinstance(trouble, RankError):
        return told_of_ranks(trouble)
    traceback.clear_frames(trouble.__traceback__)  # they may hold all the memory there is
    place = learners(Place(*where) for where in places(traceback.walk_tb(trouble.__traceback__)))
    title = "your function stopped" if place else "your answer could not be checked"
    if isinstance(trouble, TimeIsUp):
        title = ENDLESS
    return block(title, [place, reason(trouble)])


def told_of_ranks(trouble: RankError) -> str:
    """The same for an answer that ran on ranks: whoever fails first has the others waiting."""
    place, cause = learners(Place(*frame) for frame in trouble.stack), trouble.exception
    line = f"rank {trouble.rank} in {place}" if place else None
    where = "".join(f" ({note})" for note in getattr(trouble, "__notes__", ()))
    if isinstance(trouble, RunTimeout):
        return block(f"{ENDLESS}{where}", waiting(trouble))
    if isinstance(cause, CommTimeout):
        return block(f"the ranks wait for one another{where}", [line, *waiting(trouble)])
    if isinstance(cause, PeerLost) and not trouble.stack:  # nobody raised it: the rank itself
        return block(f"a rank was ended before your function returned{where}", [cause])
    if isinstance(cause, PeerLost):
        return block(f"a rank waits for one that has finished{where}", [line, cause])
    if isinstance(cause, CommMismatch):
        return block(f"the ranks do not do the same thing{where}", [line, cause])
    return block(f"your function stopped{where}", [line, trouble.failures[trouble.rank]])


def waiting(trouble: RankError) -> list[str]:
    """What each rank waits in, and which still run, by rank."""
    calls = {rank: WAITS.search(said) for rank, said in trouble.failures.items()}
    lines = [f"rank {rank} waits in {call[1]}" for rank, call in calls.items() if call]
    return lines + [f"rank {rank} still runs{where}" for rank, where in trouble.running.items()]


def learners(places) -> Place | None:
    """The innermost place outside this package and all installed ones."""
    own = [place for place in places if not place.file.startswith(NOT_THE_LEARNERS)]
    return own[-1] if own else None


def reason(trouble: BaseException) -> str:
    """The last line of a traceback: the kind of exception and its message."""
    return "".join(traceback.format_exception_only(trouble)).strip()


def block(title: str, lines) -> str:
    """A title, and what is known below it."""
    return "\n    ".join([f"{title}:", *(str(line) for line in lines if line)])
