"""When each step begins and ends: predicted from a schedule, or measured by ranks that ran it."""

from typing import NamedTuple

from course.parallel.pipeline.step import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Step


class Span(NamedTuple):
    """A step and its seconds, waiting for messages not counted."""

    step: Step
    start: float
    end: float


class Timing:
    """What every rank did, and when: `rows` [a row of spans each rank].

    Its text is a drawing: a row each rank, as wide as a step is long, with dots where it is idle.
    """

    def __init__(self, rows):
        self.rows = [list(row) for row in rows]

    @property
    def seconds(self) -> float:
        """From the first step's start to the last one's end."""
        spans = [span for row in self.rows for span in row]
        return max(span.end for span in spans) - min(span.start for span in spans)

    @property
    def busy_s(self) -> list[float]:
        """By rank, the seconds of its steps."""
        return [sum(span.end - span.start for span in row) for row in self.rows]

    @property
    def gaps_s(self) -> list[float]:
        """By rank, the seconds that it is idle between its first step and its last."""
        return [row[-1].end - row[0].start - busy if row else 0.0
                for row, busy in zip(self.rows, self.busy_s)]  # fmt: skip

    @property
    def bubble(self) -> float:
        """Which part of all ranks' time they are idle."""
        return 1 - sum(self.busy_s) / (len(self.rows) * self.seconds)

    @property
    def peak_live(self) -> list[int]:
        """By rank, how many forwards at most wait for the end of their backward."""
        return [peak_live(span.step for span in row) for row in self.rows]

    def __str__(self):
        spans = [span for row in self.rows for span in row]
        begin, width = min(s.start for s in spans), 1 + max(len(str(s.step)) for s in spans)
        unit = min(s.end - s.start for s in spans if s.end > s.start)
        return "\n".join(_drawn(row, begin, width / unit) for row in self.rows)


def peak_live(steps) -> int:
    """Of one rank's steps in order: how many forwards at most wait for their backward's end."""
    live = peak = 0
    for step in steps:
        live += (step.kind == FORWARD) - (step.kind in (BACKWARD, WEIGHT_GRADIENT))
        peak = max(peak, live)
    return peak


def _drawn(row, begin, scale) -> str:
    text = ""
    for span in row:
        start, end = (round((time - begin) * scale) for time in span[1:])
        text = text.ljust(start, ".") + str(span.step).ljust(end - start, "-")
    return text


def simulate(schedule, forward=1.0, backward=2.0, communication=0.0, *, weight=None) -> Timing:
    """When each step would begin and end, of stages that take so many seconds.

    forward, backward, and `weight` (default: half of backward), the part of backward that is the
    gradient of weights, are numbers or lists of one each stage; `communication`: seconds from one
    rank to another, while both may go on.
    """
    forward, backward = _each(forward, schedule.stages), _each(backward, schedule.stages)
    weight = [b / 2 for b in backward] if weight is None else _each(weight, schedule.stages)
    inputs = [b - w for b, w in zip(backward, weight)]
    takes = {FORWARD: forward, BACKWARD: backward, INPUT_GRADIENT: inputs, WEIGHT_GRADIENT: weight}
    ends, rows = {}, [[] for _ in schedule.rows]
    for step in schedule.order:
        rank = schedule.rank_of[step.stage]
        start = rows[rank][-1].end if rows[rank] else 0.0
        for other in schedule.needs(step):
            away = schedule.rank_of[other.stage] != rank
            start = max(start, ends[other] + away * communication)
        ends[step] = start + takes[step.kind][step.stage]
        rows[rank].append(Span(step, start, ends[step]))
    return Timing(rows)


def _each(seconds, stages) -> list[float]:
    """Of every stage.  Raises ValueError for another number of them, or for negative ones."""
    each = list(seconds) if hasattr(seconds, "__len__") else [float(seconds)] * stages
    if len(each) != stages or min(each) < 0:
        raise ValueError(f"{stages} stages have {stages} times of 0 s or more, not {each}")
    return each
