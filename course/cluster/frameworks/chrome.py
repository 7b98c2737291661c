"""Chrome traces, as profilers write them and Perfetto shows them: read, add to, put side by side.

A trace is a JSON file with a list `traceEvents`.  An event with "ph" "X" is something that lasted:
its name, its begin `ts` and length `dur` in microseconds, its process `pid` and thread `tid`.
"""

import json
from typing import NamedTuple

STEP = "step"  # what measure.py calls a step
ARITHMETIC, MESSAGES = "aten::", ("gloo:", "course:")  # how names of events begin


class Work(NamedTuple):
    """What a rank did from `start` to `end`, in seconds from the begin of its step: "arithmetic" or
    a message's name (all_reduce, send, ...)."""

    what: str
    start: float
    end: float


def read(path) -> list[dict]:
    """The events of a trace that lasted.  Raises ValueError for a file that is no Chrome trace."""
    with open(path) as file:
        try:
            events = json.load(file)["traceEvents"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no Chrome trace: {error!r}") from None
    return [event for event in events if event.get("ph") == "X"]


def work_of_step(path) -> list[Work]:
    """The work of the shortest step in a trace, each kind in order, what overlaps or touches joined
    to one; last comes the whole step.  Raises ValueError for a trace without steps."""
    events = read(path)
    steps = [event for event in events if event["name"] == STEP]
    if not steps:
        raise ValueError(f"{path} has no event that is called {STEP!r}")
    step = min(steps, key=lambda event: event["dur"])
    end, spans = _end(step), {}
    pieces = [(event, event["ts"], _end(event)) for event in events]
    own = innermost([event for event in events if event["tid"] == step["tid"]])
    for what, start, stop in _messages(pieces) + _arithmetic(own):
        if step["ts"] <= start < end:
            spans.setdefault(what, []).append(
                ((start - step["ts"]) / 1e6, (stop - step["ts"]) / 1e6)
            )
    found = [Work(what, *span) for what, each in spans.items() for span in union(each)]
    return [*found, Work(STEP, 0.0, step["dur"] / 1e6)]


def calls_a_step(path) -> dict:
    """{name: how many} of the messages in a trace, on average over its steps, sorted by name."""
    events = read(path)
    steps = sum(event["name"] == STEP for event in events)
    names = sorted(event["name"] for event in events if event["name"].startswith(MESSAGES))
    return {name: names.count(name) / steps for name in dict.fromkeys(names)}


def union(spans) -> list[tuple]:
    """Pairs (start, end) in order, those that overlap or touch joined to one."""
    joined = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def exposed_s(work) -> float:
    """Seconds in which messages of a step were under way and no arithmetic was."""
    arithmetic = [(w.start, w.end) for w in work if w.what == "arithmetic"]
    messages = [(w.start, w.end) for w in work if w.what not in ("arithmetic", STEP)]
    return _length([*arithmetic, *messages]) - _length(arithmetic)


def add_messages(path, events, begun_s):
    """Add the collective calls among `events` of a `Trace` to the trace at `path`, whose first step
    began at `begun_s` by the clock of these events.  Names begin with "course:"."""
    first = min(event["ts"] for event in read(path) if event["name"] == STEP)
    with open(path) as file:
        trace = json.load(file)
    pid = next(e["pid"] for e in trace["traceEvents"] if e["name"] == STEP)
    for event in events:
        if event.peer < 0:
            start = first + 1e6 * (event.start - begun_s)
            trace["traceEvents"].append({
                "ph": "X", "cat": "messages", "name": f"course:{event.operation}", "pid": pid,
                "tid": "messages", "ts": start, "dur": 1e6 * (event.end - event.start),
                "args": {"bytes": event.bytes},
            })  # fmt: skip
    with open(path, "w") as file:
        json.dump(trace, file)


def for_perfetto(paths, out):
    """Write the traces at `paths`, one a rank, to the file `out`, with a row a rank, which Perfetto
    opens.  Raises FileExistsError rather than write over a file."""
    events = []
    for rank, path in enumerate(paths):
        name = {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        events += [name, *({**event, "pid": rank} for event in read(path))]
    with open(out, "x") as file:
        json.dump({"traceEvents": events}, file)


def innermost(events) -> list[tuple]:
    """What one thread is at: (event, start, end) in which no event inside of it is under way."""
    pieces, under_way, now = [], [], 0.0
    ends = {"ts": float("inf"), "dur": 0}
    for event in [*sorted(events, key=lambda e: (e["ts"], -e["dur"])), ends]:
        while under_way and _end(under_way[-1]) <= event["ts"]:
            inner = under_way.pop()
            pieces.append((inner, now, _end(inner)))
            now = max(now, _end(inner))
        if under_way:
            pieces.append((under_way[-1], now, event["ts"]))
        now = event["ts"]
        under_way.append(event)
    return [piece for piece in pieces if piece[1] < piece[2]]


def _end(event) -> float:
    return event["ts"] + event["dur"]


def _arithmetic(pieces) -> list[tuple]:
    """Pieces whose innermost event is arithmetic: a wait inside of an operation is none."""
    return [("arithmetic", *span) for e, *span in pieces if e["name"].startswith(ARITHMETIC)]


def _messages(pieces) -> list[tuple]:
    """Pieces that are messages, by their names without "gloo:" or "course:"."""
    return [
        (event["name"].removeprefix(each), *span)
        for event, *span in pieces for each in MESSAGES if event["name"].startswith(each)
    ]  # fmt: skip


def _length(spans) -> float:
    return sum(end - start for start, end in union(spans))
