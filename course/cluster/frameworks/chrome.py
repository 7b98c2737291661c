"""Chrome traces, as profilers write them and Perfetto shows them: read, add to, put side by side.

A trace is a JSON file with a list `traceEvents`.  An event with "ph" "X" is something that lasted:
its name, its begin `ts` and length `dur` in microseconds, its process `pid` and thread `tid`.
"""

import bisect
import json
from typing import NamedTuple

STEP, BACKWARD = "step", "backward"  # what measure.py calls a step; what autograd runs
ATEN, AUTOGRAD, MESSAGES = "aten::", "autograd::", ("gloo:", "course:")  # how names begin


class Work(NamedTuple):
    """What a rank did from `start` to `end`, in seconds from the begin of its step: "arithmetic", a
    message's name (all_reduce, send, ...), or "backward", with what lies inside of that."""

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
    to one; last comes the whole step.  Arithmetic is what the step's own thread does, while no
    wait lies inside of it.  Raises ValueError for a trace without steps."""
    events = read(path)
    steps = [event for event in events if event["name"] == STEP]
    if not steps:
        raise ValueError(f"{path} has no event that is called {STEP!r}")
    step = min(steps, key=lambda event: event["dur"])
    begin, thread = step["ts"], [event for event in events if event["tid"] == step["tid"]]
    lasted = [(_kind(event["name"]), event["ts"], _end(event)) for event in events]
    lasted += [("arithmetic", *at) for name, *at in innermost(thread) if name.startswith(ATEN)]
    spans = {}
    for what, start, end in lasted:
        if what and begin <= start < _end(step):  # a message's end may be noted late
            span = (start - begin) / 1e6, (min(end, _end(step)) - begin) / 1e6
            spans.setdefault(what, []).append(span)
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


def innermost(events):
    """Yields (name, start, end) of each stretch of a thread's time, in microseconds, by the event
    that covers it with no other inside.  Events of one thread are inside of or after another."""
    around, now, never = [], 0.0, {"name": "", "ts": float("inf"), "dur": 0.0}
    for event in [*sorted(events, key=lambda event: (event["ts"], -event["dur"])), never]:
        while around and _end(around[-1]) <= event["ts"]:
            done = around.pop()
            yield done["name"], now, _end(done)
            now = _end(done)
        if around:
            yield around[-1]["name"], now, event["ts"]
        around.append(event)
        now = event["ts"]


def exposed_s(work) -> float:
    """Seconds in which messages of a step were under way and no arithmetic was."""
    arithmetic = [(w.start, w.end) for w in work if w.what == "arithmetic"]
    messages = [(w.start, w.end) for w in work if w.what not in ("arithmetic", BACKWARD, STEP)]
    return _length([*arithmetic, *messages]) - _length(arithmetic)


def add_messages(path, events, begun_s):
    """Add the collective calls among `events` of a `Trace` to the trace at `path`, whose steps
    began at `begun_s` by the clock of these events.  Names begin with "course:"."""
    steps = sorted(event["ts"] for event in read(path) if event["name"] == STEP)
    with open(path) as file:
        trace = json.load(file)
    pid = next(e["pid"] for e in trace["traceEvents"] if e["name"] == STEP)
    for event in events:
        if event.peer < 0:
            step = bisect.bisect(begun_s[: len(steps)], event.start) - 1
            trace["traceEvents"].append({
                "ph": "X", "cat": "messages", "name": f"course:{event.operation}", "pid": pid,
                "tid": "messages", "ts": steps[step] + 1e6 * (event.start - begun_s[step]),
                "dur": 1e6 * (event.end - event.start), "args": {"bytes": event.bytes},
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


def _kind(name) -> str:
    """Backward, or the message that an event of this name is, if it is one of these."""
    message = next((name.removeprefix(each) for each in MESSAGES if name.startswith(each)), "")
    return BACKWARD if name.startswith(AUTOGRAD) else message


def _end(event) -> float:
    return event["ts"] + event["dur"]


def _length(spans) -> float:
    return sum(end - start for start, end in union(spans))
